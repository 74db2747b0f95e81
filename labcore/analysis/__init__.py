"""Analyses of finished and running runs: comparisons, the doctor, lessons and studies. Imports no torch."""
