"""Language models: the session of a run, its loops, its networks, and what only looks at them."""
