"""A picture of Foundations: a component that has the grips, axes and random numbers of all of them."""

from __future__ import annotations

from pathlib import Path

from app.components.component import Component

HERE = Path(__file__).parent


class Picture(Component):
    """The picture in the folder `name` beside this file: its scripts after the shared ones, its style likewise.

    The element that it draws into is `.rl-foundation-NAME`.
    """

    def __init__(self, name: str) -> None:
        super().__init__(HERE / name, *sorted(HERE.glob("*.js")))
        self.name = f"foundation_{name}"

    @property
    def style(self) -> str:
        return "\n".join(path.read_text(encoding="utf-8") for path in [
            HERE / "foundations.css", *sorted(self.folder.glob("*.css"))])
