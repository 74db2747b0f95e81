"""The sections of Foundations in the order in which they are read."""

from __future__ import annotations

from app.foundations import entropy

SECTIONS = (entropy.SECTION,)
BY_KEY = {section.key: section for section in SECTIONS}
