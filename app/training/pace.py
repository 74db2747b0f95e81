"""Set how often a live page is drawn: at its usual rate, and less often while many pages are open or in a slow browser.

All pages share the one Python process of the server. Together their updates may take an eighth of a core; beyond that
each page is updated half as often, then a quarter as often. The cost of an update is measured, so a slow machine slows
down sooner. A browser measures its own time for an update, and asks for fewer updates if it would have no time left for
clicks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from weakref import WeakSet

import streamlit as st

SHARE = 1 / 8  # of a core, for the drawings of all pages; the browser works several times as much on one
SLACK = 1.25  # how far below its bound the load must be before pages are drawn more often again
GONE = 3.0  # intervals without a drawing after which a page counts as closed
RAREST = 16  # times rarer than usual that a browser may ask for
KEPT = 0.8  # share of the mean cost that stays when a new one is known


class Page:
    """The drawings of one page: the seconds of a core that one costs, when the last one was, how much rarer than usual
    they are, how much rarer the browser wants them, and the seconds between two of them."""

    def __init__(self) -> None:
        self.cost = self.last = 0.0
        self.factor = self.browser = 1
        self.every = 0.0

    def took(self, seconds: float, now: float) -> None:
        self.cost = KEPT * self.cost + (1 - KEPT) * seconds if self.cost else seconds
        self.last = now


class Pages:
    """All live pages of a server. Each is drawn by a thread of its own."""

    def __init__(self) -> None:
        self._pages: WeakSet[Page] = WeakSet()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._pages)

    def add(self, page: Page) -> None:
        with self._lock:
            self._pages.add(page)

    def every(self, page: Page, usual: float, now: float) -> float:
        """The seconds between two drawings of `page`: `usual`, or that times a power of two."""
        with self._lock:
            costs = [each.cost for each in self._pages if now - each.last < GONE * each.every]
        wanted = sum(costs) / SHARE
        while usual * page.factor < wanted:
            page.factor *= 2
        while page.factor > 1 and usual * page.factor / 2 > SLACK * wanted:
            page.factor //= 2
        page.every = usual * max(page.factor, page.browser)
        return page.every


@st.cache_resource(show_spinner=False)
def _pages() -> Pages:
    return Pages()


def _page() -> Page:
    page: Page = st.session_state.setdefault("drawings", Page())
    return page


def every(usual: float) -> float:
    """The seconds between two drawings of this page, which are `usual` seconds where there is nothing else to do."""
    return _pages().every(_page(), usual, time.monotonic())


def of_browser(factor: int) -> None:
    """Update this page less often by this factor, as its browser asks."""
    _page().browser = min(max(1, factor), RAREST)


@contextmanager
def counted() -> Iterator[None]:
    """Count what is drawn within as one drawing of this page."""
    begun = time.thread_time()
    try:
        yield
    finally:
        _page().took(time.thread_time() - begun, time.monotonic())
        _pages().add(_page())
