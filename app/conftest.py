"""Doctests of the app: its entry is a script, which would run."""

collect_ignore = ["main.py"]
