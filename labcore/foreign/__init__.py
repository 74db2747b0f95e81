"""Metrics of other tools: kinds of files, layouts of tools, and the runs in them."""
