"""What a link to the page of the lessons says: which lesson is open."""

from __future__ import annotations

from dataclasses import dataclass

from app.link import param

PAGE = "../pages/lessons.py"


@dataclass(frozen=True)
class Place:
    """The open lesson by its name; empty for the list of all."""

    lesson: str = param("")


def query(name: str) -> dict[str, str]:
    """The address of a lesson."""
    return {"lesson": name}
