"""What the LLM lab has of its own."""
