"""Record the README's moving picture: `python -m docs.moving_picture` runs GRPO in a headless browser, changes a knob
while it learns, and writes docs/img/run.gif.

The frames are screenshots of one real run, from its start to its end; nothing is drawn in. The picture is faster than
the run.
"""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from docs.pictures import IMAGES, WAIT, run
from labcore.runs.store.rows import ACTIVE
from labcore.runs.store.store import Store
from tests.browser.chromium import find
from tests.browser.conftest import FLAGS, Server

SIZE = (1280, 760)  # pixels of the browser's window
SHOWN = (960, 570)  # pixels of the picture
STEPS = 200
EVERY = 5  # steps of the run between two frames
TURNS = {60: 3, 125: 3}  # at which steps the KL coefficient is raised, by how many marks of its slider
FRAME, LAST = 180, 2500  # ms that a frame and the last one stay
COLOURS = 96


def main() -> None:
    """Start a lab of its own, record it, stop it."""
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        server = Server(Path(home))
        browser = playwright.chromium.launch(executable_path=find(), args=FLAGS)
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        try:
            frames = recorded(page, server.url, Store(f"sqlite:///{server.home / 'lab.db'}"))
        finally:
            browser.close()
            server.stop()
    write(frames, IMAGES / "run.gif")
    print(f"{IMAGES / 'run.gif'}: {len(frames)} frames, {(IMAGES / 'run.gif').stat().st_size / 1e6:.2f} MB")


def recorded(page: Page, url: str, store: Store) -> list[Image.Image]:
    """The page before the run, about every fifth step, and after it."""
    page.goto(f"{url}/llm")
    page.get_by_role("button", name=re.compile("^Run")).wait_for(timeout=WAIT)
    page.wait_for_timeout(1500)
    frames = [photo(page)]
    run(page, f"{url}/llm?steps={STEPS}")
    page.get_by_text(re.compile(rf"Running.*step \d+ of {STEPS}")).first.wait_for(timeout=WAIT)
    turns, newest = dict(TURNS), 0
    while (row := store.runs()[0]).state in ACTIVE:
        if turns and row.step >= min(turns):
            slider = page.get_by_role("slider", name=re.compile("KL coefficient"))
            for _ in range(turns.pop(min(turns))):
                slider.press("ArrowRight")
        if row.step >= newest + EVERY:
            frames.append(photo(page))
            newest = row.step
        page.wait_for_timeout(200)
    page.wait_for_timeout(4000)  # the last rows are drawn
    return [*frames, photo(page)]


def photo(page: Page) -> Image.Image:
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB").resize(SHOWN, Image.Resampling.LANCZOS)


def write(frames: list[Image.Image], target: Path) -> None:
    """A GIF in one palette, which is made from frames of the whole run."""
    few = frames[:: max(1, len(frames) // 6)]
    sheet = Image.new("RGB", (SHOWN[0], SHOWN[1] * len(few)))
    for place, frame in enumerate(few):
        sheet.paste(frame, (0, SHOWN[1] * place))
    palette = sheet.quantize(COLOURS, method=Image.Quantize.MEDIANCUT)
    first, *others = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    first.save(target, save_all=True, append_images=others, loop=0, optimize=True,
               duration=[FRAME] * len(others) + [LAST])


if __name__ == "__main__":
    main()
