"""The parts of the LLM lab."""
