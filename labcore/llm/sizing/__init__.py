"""Estimate what a run of a language model needs before it starts: passes, memory, time, cost. Imports no torch."""
