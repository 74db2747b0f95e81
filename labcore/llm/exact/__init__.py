"""Exact values of a policy on problems so small that every completion can be enumerated."""
