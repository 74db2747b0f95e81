"""The page Foundations: one file for each of its sections."""
