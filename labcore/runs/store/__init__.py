"""The store: runs, steps, events and controls in one database."""
