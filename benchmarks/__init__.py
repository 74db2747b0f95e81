"""The lab beside its peers, measured side by side. Their packages are in requirements-bench*.txt."""
