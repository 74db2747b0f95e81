"""Studies: a claim of the literature, a sweep that tests it here, and a rule that says what came out. Imports no torch."""
