"""The Sweep view of a sweep that is too large for a chart of each setting: what wins, which knob matters, a ranking."""
