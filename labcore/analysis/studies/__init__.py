"""Studies: a claim of the literature, a sweep that tests it, and a rule that says what came out. Imports no torch."""
