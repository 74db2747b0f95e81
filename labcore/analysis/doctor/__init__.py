"""The doctor: rules over a run's metrics that say what is wrong, by which numbers, and what fixes it."""
