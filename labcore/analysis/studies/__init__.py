"""Studies: a claim of the literature, a sweep that tests it, and a rule for the verdict. Imports no torch."""
