"""Take a run further: the same training as a ready script for TRL, verl or OpenRLHF, at a size that needs them."""
