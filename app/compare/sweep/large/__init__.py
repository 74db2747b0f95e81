"""The Sweep view of a sweep that is too large for a chart of each setting: the best, each knob's effect, a ranking."""
