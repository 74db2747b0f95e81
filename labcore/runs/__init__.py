"""Around a run in the store: controls, forks, sweeps, versions and faults."""
