"""Language models: the session of a run, its loops, its networks, and probes that only observe them."""
