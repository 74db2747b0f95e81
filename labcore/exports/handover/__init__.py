"""Hand a run over: write a ready script for TRL, verl or OpenRLHF that trains the same at a larger size."""
