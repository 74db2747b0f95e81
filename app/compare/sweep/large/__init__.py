"""The Sweep view of a sweep too large for a chart of each setting: the best setting, each knob's effect and a
ranking."""
