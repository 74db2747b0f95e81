"""The page Compare: groups of runs as curves, as a table, as reward against KL, and by their answers."""
