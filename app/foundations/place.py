"""The link parameters of Foundations: the open section, and the model and prompt there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app import link
from app.foundations.sections import BY_KEY, SECTIONS
from app.link import param


@dataclass(frozen=True)
class Place:
    """`section` is a key of SECTIONS."""

    section: str = param(SECTIONS[0].key, link.one_of(BY_KEY))


def go(**changes: Any) -> None:
    """Put other values of these fields into the link; the others stay as they are by now."""
    link.turn(Place, **changes)
