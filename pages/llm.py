"""The LLM lab: knobs on the left, the run on the right."""

from app import cost, memory
from app.llm import rail, story
from app.llm.own_tabs import TABS
from app.training.frame import frame

frame("llm", picture=story.show, own_tabs=TABS, top=rail.show, before=(memory.of_draft, cost.of_draft))
