"""Runs of other trainers: the client that sends them (`client.py` can be copied), callbacks, and what the lab does with
the lines that it receives. Importing it loads the standard library only."""

from labcore.watch.client import Watch

__all__ = ["Watch"]
