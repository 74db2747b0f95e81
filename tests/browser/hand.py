"""The mouse, for drags that cannot miss: a page that is still loading may move an element away from under it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from playwright.sync_api import Locator

TRIES = 20
# A press beside the spot is kept from the page, which would draw or choose something else there.
WATCH = """(element, [x, y]) => addEventListener("pointerdown", (event) => {
    const box = element.getBoundingClientRect(), corner = [event.clientX - x, event.clientY - y];
    const hit = element.contains(event.target) && Math.hypot(box.x - corner[0], box.y - corner[1]) < 1.5;
    window.pressedAt = hit ? corner : null;
    if (!hit) event.stopImmediatePropagation();
}, { capture: true, once: true })"""


@contextmanager
def grabbed(element: Locator, x: float, y: float) -> Iterator[Callable[..., None]]:
    """The mouse button held down on an element, until the end of the block.

    `x` and `y` are pixels from the element's corner. The given function moves the mouse to a place counted from where
    this corner was, in one or more `steps`.
    """
    left, top = _pressed(element, x, y)
    mouse = element.page.mouse

    def move(x: float, y: float, steps: int = 1) -> None:
        mouse.move(left + x, top + y, steps=steps)

    yield move
    mouse.up()


def _pressed(element: Locator, x: float, y: float) -> tuple[float, float]:
    """Press there, again if the element moved meanwhile; the place of its corner in the window."""
    page = element.page
    for tried in range(TRIES):
        element.hover(position={"x": x, "y": y})  # waits until the element is still
        element.evaluate(WATCH, [x, y])
        page.mouse.down()
        if corner := page.evaluate("window.pressedAt"):
            return corner[0], corner[1]
        page.mouse.move(0, 0)  # a click needs press and release on one element
        page.mouse.up()
        page.wait_for_timeout(20 * tried)
    raise AssertionError(f"{element} never kept still")
