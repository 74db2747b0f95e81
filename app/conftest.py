"""Doctests of the app: its entry and its navigation are scripts, which would run."""

collect_ignore = ["main.py", "navigation.py"]
