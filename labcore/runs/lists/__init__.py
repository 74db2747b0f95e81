"""All runs as a list: found, grouped, marked, deleted and cleaned up. Imports no torch."""
