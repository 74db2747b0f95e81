"""The parts of the page Exact."""
