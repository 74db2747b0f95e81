"""Compare runs: their curves, statistics over seeds, and runs of other tools."""
