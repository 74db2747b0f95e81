"""The tables of language models: algorithms, tasks and built-in models."""
