"""The Sweep view of a sweep that is too large for a chart of each setting: the best setting, the effect of each knob, a
ranking."""
