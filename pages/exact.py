"""Exact: a language model on a problem that can be enumerated, its estimates beside the exact values."""

from app.exact.own_tabs import TABS
from app.training.frame import frame

frame("exact", own_tabs=TABS)
