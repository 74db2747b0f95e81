"""The parts of a section of Foundations, and the reader's place in the link."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.components.foundations.picture import Picture


@dataclass(frozen=True)
class Return:
    """A place of the lab where this comes back: a page and what its link says."""

    words: str
    page: str
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """A section: one sentence, an equation, what its letters mean, a picture to grab, and where it returns.

    `symbols` are (LaTeX, words): every letter that no earlier section has explained. `tries` are what to do with the
    picture, each a short sentence. `below` draws what needs the server, under the picture.
    """

    key: str
    title: str
    sentence: str
    latex: str
    symbols: tuple[tuple[str, str], ...]
    tries: tuple[str, ...]
    returns: tuple[Return, ...]
    picture: Picture
    data: Mapping[str, Any] = field(default_factory=dict)
    below: Callable[[], None] | None = None
