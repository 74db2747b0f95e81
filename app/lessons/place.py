"""The link parameters of the page Lessons: the open lesson. To go there from the page itself takes a button:
Streamlit's links to the page that is open do nothing."""

from __future__ import annotations

from dataclasses import dataclass

from app import link
from app.link import param


@dataclass(frozen=True)
class Place:
    """The open lesson by its name; empty for the list of all."""

    lesson: str = param("")


def go(name: str = "") -> None:
    """To a lesson, or to the list of all."""
    link.go(link.written(Place(name)))
