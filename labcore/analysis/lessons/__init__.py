"""Lessons: predict, run, check. Text files with a claim, preset runs and a check of the claim on the runs' numbers."""
