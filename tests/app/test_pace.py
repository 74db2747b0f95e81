"""How often live pages are drawn: as usual while they are few, rarer while that takes too much of the server."""

import gc

import pytest

from app.training import pace
from app.training.pace import GONE, SHARE, Page, Pages

COST = 0.04  # seconds of a core, a usual drawing
USUAL = 0.5


@pytest.fixture
def pages():
    return Pages()


def opened(pages: Pages, count: int, cost: float = COST, now: float = 100.0) -> list[Page]:
    """So many pages, each of which has just been drawn."""
    made = [Page() for _ in range(count)]
    for page in made:
        page.every = USUAL
        page.took(cost, now)
        pages.add(page)
    return made


@pytest.mark.parametrize(("count", "every"), [(1, 0.5), (3, 1.0), (4, 2.0), (12, 4.0)])
def test_all_pages_together_take_no_more_than_the_share(pages, count, every):
    made = opened(pages, count)
    assert [pages.every(page, USUAL, 100.0) for page in made] == [every] * count
    assert count * COST / every <= SHARE
    assert every == USUAL or count * COST / (every / 2) > SHARE  # and no rarer than that asks for


@pytest.mark.parametrize(("asked", "every"), [(1, 0.5), (8, 4.0), (0, 0.5), (10**6, 8.0)])
def test_a_slow_browser_is_drawn_as_rarely_as_it_asks(monkeypatch, pages, asked, every):
    page, other = opened(pages, 2, 0.01)
    monkeypatch.setattr(pace, "_page", lambda: page)
    pace.of_browser(asked)
    assert pages.every(page, USUAL, 100.0) == every and pages.every(other, USUAL, 100.0) == USUAL
    page.took(COST, 100.0)
    other.took(10 * COST, 100.0)
    assert pages.every(page, USUAL, 100.0) == max(every, pages.every(other, USUAL, 100.0)), "the rarer of both"


def test_a_page_of_other_usual_interval_is_slowed_by_the_same_rule(pages):
    paused, *_ = opened(pages, 4)
    assert pages.every(paused, 1.0, 100.0) == 2.0


def test_closed_pages_do_not_count(pages):
    [page, *others] = opened(pages, 12)
    assert pages.every(page, USUAL, 100.0) == 4.0
    page.took(COST, 100.0 + GONE * USUAL)
    assert pages.every(page, USUAL, 100.0 + GONE * USUAL) == 0.5
    del others
    gc.collect()
    assert len(pages) == 1  # what nobody holds is not kept


def test_at_the_bound_pages_do_not_go_to_and_fro(pages):
    just_above = opened(pages, 1, 1.05 * SHARE * USUAL)[0]
    assert pages.every(just_above, USUAL, 100.0) == 1.0
    just_above.cost = 0.95 * SHARE * USUAL
    assert pages.every(just_above, USUAL, 100.0) == 1.0
    just_above.cost = 0.75 * SHARE * USUAL
    assert pages.every(just_above, USUAL, 100.0) == 0.5


def test_one_slow_drawing_among_many_does_not_slow_a_page(pages):
    [page] = opened(pages, 1, 0.02)
    page.took(0.1, 101.0)
    assert page.cost == pytest.approx(0.036)
    assert pages.every(page, USUAL, 101.0) == 0.5


def test_the_time_of_a_drawing_is_that_of_its_thread(monkeypatch):
    page, shared, clock = Page(), Pages(), iter((1.0, 1.25))
    monkeypatch.setattr(pace, "_page", lambda: page)
    monkeypatch.setattr(pace, "_pages", lambda: shared)
    monkeypatch.setattr(pace.time, "thread_time", lambda: next(clock))
    with pytest.raises(KeyError), pace.counted():
        raise KeyError
    assert page.cost == 0.25 and len(shared) == 1
