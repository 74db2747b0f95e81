"""Take the README's pictures: `python -m docs.pictures` runs the lab in a headless browser and writes docs/img/."""

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
    """A PPO run with one knob turned, seen from three sides."""
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
    """Run GRPO with several updates a batch, so that there are clipped tokens to see; then photograph it."""
    page.goto(f"{url}/llm")
    page.get_by_role("button", name=re.compile("^Run")).click(timeout=WAIT)
    page.get_by_text(re.compile(r"step 6\d of|6\d of \d+")).first.wait_for(timeout=WAIT)
    page.get_by_role("slider", name=re.compile("KL price")).press("ArrowRight")
    page.get_by_text(re.compile("^β 0.04 → ")).first.wait_for(timeout=WAIT)
    page.get_by_text(re.compile(r"12\d of \d+")).first.wait_for(timeout=WAIT)
    page.mouse.move(5, 790)
    page.screenshot(path=IMAGES / "llm-lab.png")
    page.get_by_text("Finished").first.wait_for(timeout=WAIT)
    for tab in ("Samples", "Surrogate"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(2500)
        page.get_by_role("tabpanel", name=tab).screenshot(path=IMAGES / f"{tab.lower()}.png")


if __name__ == "__main__":
    main()
