"""Hand a run over: write a ready script for TRL, verl, OpenRLHF or ms-swift that trains the same at a larger size."""
