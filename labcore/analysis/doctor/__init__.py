"""The doctor: rules over a run's metrics that give findings with evidence and a fix."""
