"""The LLM lab: knobs on the left, what happens on the right."""

from app.training.frame import frame

frame("llm")
