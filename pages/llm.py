"""The LLM lab: knobs on the left, what happens on the right."""

from app.frame import frame

frame("llm")
