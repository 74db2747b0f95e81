"""The sections of Foundations in the order in which they are read."""

from __future__ import annotations

from app.foundations import entropy, kl, kl_samples, monte_carlo

SECTIONS = (entropy.SECTION, kl.SECTION, kl_samples.SECTION, monte_carlo.SECTION)
BY_KEY = {section.key: section for section in SECTIONS}
