"""The LLM lab: knobs on the left, what happens on the right."""

from app import cost
from app.llm import rail, story
from app.llm.own_tabs import TABS
from app.training.frame import frame

frame("llm", picture=story.show, own_tabs=TABS, top=rail.show, before=cost.of_draft)
