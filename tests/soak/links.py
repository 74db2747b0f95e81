"""Links that nobody's page ever wrote, opened on a live page: each is answered without a traceback."""

import random

from tests.soak.hosts import Page
from tests.soak.made_up import word
from tests.soak.report import Report

MOST = 5  # at a time
PAGES = {"llm": ("run", "model", "algorithm", "task", "steps", "tab", "prompt", "beta", "label"),
         "maze": ("run", "maze", "seed", "cell", "at", "pace"), "cartpole": ("run", "task", "x", "smooth"),
         "exact": ("run", "task", "algorithm"), "compare": ("runs", "metric", "sweep", "new", "batch", "view"),
         "runs": ("find", "state", "order", "group"), "playground": ("runs", "prompt", "t", "n", "max"),
         "lessons": ("lesson",), "studies": ("study",), "": ("find",)}


def follow(host: Page, chance: random.Random, report: Report) -> None:
    """Open some. Raises AssertionError where a page shows a traceback."""
    for _ in range(MOST):
        page = chance.choice(list(PAGES))
        query = {key: word(chance, most=2000) for key in chance.sample(PAGES[page], 1)}
        assert not host.open(page, query), f"the page shows a traceback: /{page} with {query}"
        report.count("Bad inputs", "link")
