"""The sections of Foundations in the order in which they are read."""

from __future__ import annotations

from app.foundations import action_space, decision, entropy, importance, kl, kl_samples, monte_carlo, variance

SECTIONS = tuple(each.SECTION for each in (entropy, kl, kl_samples, monte_carlo, variance, importance, decision,
                                           action_space))
BY_KEY = {section.key: section for section in SECTIONS}
