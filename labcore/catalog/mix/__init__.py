"""Mixes: combinations of choices by the user: their row, the nearest named row, and cautions."""
