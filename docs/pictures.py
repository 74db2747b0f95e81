"""Take the pictures of docs/tour.md: `python -m docs.pictures [NAME…]` runs the lab in a browser and writes docs/img/.
Without a name, all of them.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, ViewportSize, sync_playwright

from labcore.runs.store.rows import ACTIVE
from labcore.runs.store.store import Store
from tests.browser.chromium import find
from tests.browser.conftest import FLAGS, Server

IMAGES = Path(__file__).with_name("img")
SIZE: ViewportSize = {"width": 1280, "height": 800}
WAIT = 240_000  # ms; a machine under load is slow
STILL = 3000  # ms in which a page draws its last charts


@dataclass(frozen=True)
class Camera:
    """A page of a lab that runs for the pictures, and its store."""

    page: Page
    url: str
    store: Store

    def open(self, path: str) -> None:
        self.page.goto(f"{self.url}/{path}")

    def run(self, path: str) -> None:
        """Open the lab and start a run."""
        run(self.page, f"{self.url}/{path}")

    def step(self, step: int) -> None:
        """Wait until the newest run has made so many steps."""
        self._until(lambda: self.store.runs(limit=1)[0].step >= step)

    def ended(self) -> None:
        """Wait until no run is waiting or running."""
        self._until(lambda: bool(self.store.runs(limit=1)) and not self.store.runs(*ACTIVE, limit=1))

    def _until(self, reached: Callable[[], bool]) -> None:
        until = time.monotonic() + 10 * WAIT / 1000
        while not reached():
            if time.monotonic() > until:
                raise TimeoutError("the runs of a picture take too long")
            self.page.wait_for_timeout(200)

    def take(self, name: str) -> None:
        self.page.mouse.move(5, SIZE["height"] - 5)  # no tooltip in the picture
        self.page.evaluate("document.querySelector('[data-testid=stMain]').scrollTo(0, 0)")
        self.page.wait_for_timeout(STILL)
        self.page.screenshot(path=IMAGES / f"{name}.png")

    def take_tab(self, tab: str, name: str) -> None:
        """The whole of a run's tab, with nothing over it."""
        self.page.get_by_role("tab", name=tab).click(timeout=WAIT)
        self.page.set_viewport_size({"width": SIZE["width"], "height": 1800})
        self.page.wait_for_timeout(STILL)
        self.page.get_by_role("tabpanel", name=tab).screenshot(path=IMAGES / f"{name}.png")
        self.page.set_viewport_size(SIZE)


def main(names: list[str]) -> None:
    """Start a lab of its own, photograph it, stop it."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        server = Server(Path(home))
        browser = playwright.chromium.launch(executable_path=find(), args=FLAGS)
        page = browser.new_page(viewport=SIZE, device_scale_factor=1.5)
        page.set_default_timeout(WAIT)
        try:
            camera = Camera(page, server.url, Store(f"sqlite:///{server.home / 'lab.db'}"))
            for name in names or PICTURES:
                PICTURES[name](camera)
        finally:
            browser.close()
            server.stop()


def llm(camera: Camera) -> None:
    """GRPO with a knob turned while it learns."""
    camera.run("llm")
    camera.step(60)
    camera.page.get_by_role("slider", name=re.compile("KL coefficient")).press("ArrowRight")
    camera.step(130)
    camera.take("llm-lab")
    camera.ended()


def tokens(camera: Camera) -> None:
    """PPO, whose several updates a batch leave clipped tokens to see."""
    camera.run("llm?algorithm=ppo&steps=20&group_size=4&prompts_per_step=32")
    camera.ended()
    camera.take_tab("Surrogate", "surrogate")
    camera.take_tab("Microscope", "microscope")


def doctor(camera: Camera) -> None:
    """GRPO with a learning rate that is raised too far."""
    camera.run("llm?steps=130")
    camera.step(75)
    camera.page.get_by_role("slider", name=re.compile("Learning rate")).press("End")
    camera.ended()
    camera.page.get_by_text("Problem").first.wait_for()
    camera.take("doctor")


def maze(camera: Camera) -> None:
    camera.run("maze?task=cliff")
    camera.step(150)
    camera.take("maze")
    camera.ended()


def cartpole(camera: Camera) -> None:
    camera.run("cartpole")
    camera.ended()
    camera.page.wait_for_timeout(STILL)  # the players swing the pole
    camera.take("cartpole")


def surrogate(camera: Camera) -> None:
    camera.open("surrogate?shown=cpi,clip,soft_gate&focus=clip")
    camera.page.get_by_text("Better than expected").first.wait_for()
    camera.take("surrogate-explorer")


def foundations(camera: Camera) -> None:
    camera.open("foundations?section=kl_samples")
    camera.page.get_by_text("Samples n").first.wait_for()
    camera.take("foundations")


def compare(camera: Camera) -> None:
    """The comparison that the form proposes, with fewer steps."""
    camera.open("compare")
    steps = camera.page.get_by_role("spinbutton", name="Steps")
    steps.fill("80")
    steps.press("Enter")
    camera.page.get_by_role("button", name=re.compile("^Start 15 runs")).click()
    camera.page.wait_for_url(re.compile("sweep="))
    camera.ended()
    camera.page.reload()
    camera.page.get_by_text("Equal tokens").first.wait_for()
    camera.take("compare")


def playground(camera: Camera) -> None:
    """A trained model beside its base."""
    camera.run("llm?steps=60")
    camera.ended()
    camera.open("playground")
    camera.page.get_by_text(re.compile(r"\d of 3 right")).last.wait_for()
    camera.take("playground")


PICTURES: dict[str, Callable[[Camera], None]] = {
    each.__name__: each for each in (llm, tokens, doctor, maze, cartpole, surrogate, foundations, compare, playground)}


def run(page: Page, address: str) -> None:
    """Open the lab and start a run."""
    page.goto(address)
    page.get_by_role("button", name=re.compile("^Run")).first.click(timeout=WAIT)
    page.mouse.move(5, 790)  # no tooltip in the picture


if __name__ == "__main__":
    main(sys.argv[1:])
