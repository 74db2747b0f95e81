"""The LLM lab: knobs on the left, what happens on the right."""

from app.llm import story
from app.llm.own_tabs import TABS
from app.training.frame import frame

frame("llm", picture=lambda run, feed: story.show(run, feed, feed.last_step), own_tabs=TABS)
