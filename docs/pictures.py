"""Take the pictures of docs/tour.md: `python -m docs.pictures` runs the lab in a browser and writes docs/img/."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.browser.chromium import find
from tests.browser.conftest import FLAGS, Server

IMAGES = Path(__file__).with_name("img")
WAIT = 120_000  # ms


def main() -> None:
    """Start a lab of its own, photograph it, stop it."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        server = Server(Path(home))
        browser = playwright.chromium.launch(executable_path=find(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800}, device_scale_factor=1.5)
        try:
            take(page, server.url)
        finally:
            browser.close()
            server.stop()


def take(page: Page, url: str) -> None:
    """GRPO with a knob turned while it learns; PPO, whose several updates a batch leave clipped tokens to see; then the
    classic worlds."""
    run(page, f"{url}/llm")
    page.get_by_text(re.compile(r"Running.*step [5-7]\d of 200")).first.wait_for(timeout=WAIT)
    page.get_by_role("slider", name=re.compile("KL coefficient")).press("ArrowRight")
    page.get_by_text(re.compile(r"Running.*step 13\d of 200")).first.wait_for(timeout=WAIT)
    page.screenshot(path=IMAGES / "llm-lab.png")
    run(page, f"{url}/llm?algorithm=ppo&steps=20&group_size=4&prompts_per_step=32")
    page.get_by_text("Finished").first.wait_for(timeout=WAIT)
    page.get_by_role("tab", name="Surrogate").click()
    page.wait_for_timeout(2500)
    page.get_by_role("tabpanel", name="Surrogate").screenshot(path=IMAGES / "surrogate.png")
    page.get_by_role("tab", name="Microscope").click()
    page.set_viewport_size({"width": 1280, "height": 1800})  # the whole tab, with nothing over it
    page.wait_for_timeout(2500)
    page.get_by_role("tabpanel", name="Microscope").screenshot(path=IMAGES / "microscope.png")
    page.set_viewport_size({"width": 1280, "height": 800})
    run(page, f"{url}/maze?task=cliff")
    page.get_by_text(re.compile(r"Running.*step 1[5-9]\d of 300")).first.wait_for(timeout=WAIT)
    page.screenshot(path=IMAGES / "maze.png")
    run(page, f"{url}/cartpole")
    page.get_by_text("Finished").first.wait_for(timeout=WAIT)
    page.wait_for_timeout(4000)  # the players swing the pole
    page.screenshot(path=IMAGES / "cartpole.png")
    compare(page, url)


def compare(page: Page, url: str) -> None:
    """The comparison that the form proposes, as curves and as a table; then one of its models beside its base."""
    page.goto(f"{url}/compare")
    page.get_by_role("button", name=re.compile("^Start 15 runs")).click(timeout=WAIT)
    page.get_by_text("15 finished").first.wait_for(timeout=10 * WAIT)
    page.get_by_role("radio", name="Table").click()
    page.get_by_text("What differs").wait_for(timeout=WAIT)
    page.mouse.move(5, 790)
    page.wait_for_timeout(2500)
    page.screenshot(path=IMAGES / "compare.png")
    page.goto(f"{url}/playground")
    page.get_by_text(re.compile("right")).first.wait_for(timeout=WAIT)
    page.wait_for_timeout(2500)
    page.screenshot(path=IMAGES / "playground.png")


def run(page: Page, address: str) -> None:
    """Open the lab and start a run."""
    page.goto(address)
    page.get_by_role("button", name=re.compile("^Run")).click(timeout=WAIT)
    page.mouse.move(5, 790)  # no tooltip in the picture


if __name__ == "__main__":
    main()
