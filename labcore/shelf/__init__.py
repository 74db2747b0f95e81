"""The runs that are there, as lists show them: found, grouped, marked, deleted and cleaned up. Imports no torch."""
