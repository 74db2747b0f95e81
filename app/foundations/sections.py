"""The sections of Foundations in the order in which they are read."""

from __future__ import annotations

from app.foundations import action_space, decision, entropy, importance, variance

SECTIONS = (entropy.SECTION, variance.SECTION, importance.SECTION, decision.SECTION, action_space.SECTION)
BY_KEY = {section.key: section for section in SECTIONS}
