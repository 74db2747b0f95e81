"""The address: one module reads and writes it; what does not fit is said; a late refresh undoes no choice."""

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest
import streamlit as st

from app import link
from app.link import Fault, Param, param
from labcore.errors import LabError
from tests.app.seeding import link as said_in
from tests.app.seeding import seed

ROOT = Path(__file__).parents[2]
CODE = sorted(path for name in ("app", "pages") for path in (ROOT / name).rglob("*.py"))


@dataclass(frozen=True)
class Page:
    names: tuple[str, ...] = param((), link.some_of(("a", "b")))
    count: int = param(3, link.whole(1, 8), key="n")
    warm: float = param(1.0, link.number(0, 2))
    on: bool = param(False, link.switch)
    words: str | None = param(None)


class Query(dict):
    """Streamlit's, without a browser."""

    to_dict = dict.copy

    def from_dict(self, said):
        self.clear()
        self.update(said)


@pytest.fixture
def browser(monkeypatch):
    """What the browser's address says."""
    monkeypatch.setattr(st, "query_params", query := Query())
    monkeypatch.setattr(st, "session_state", {})
    monkeypatch.setattr(link, "_path", lambda: "/here")
    return query


def uses(source: str) -> bool:
    return "query_params" in source and any(
        isinstance(node, ast.Attribute) and node.attr == "query_params" for node in ast.walk(ast.parse(source)))


def test_only_one_module_reads_and_writes_the_address():
    incoming = ROOT / "app" / "incoming.py"  # answers other programs and has no page
    assert [path for path in CODE if uses(path.read_text("utf-8"))] == [incoming, ROOT / "app" / "link.py"]


def test_what_is_at_its_default_is_not_written_and_all_comes_back():
    page = Page(("a", "b"), 5, 0.5, True, "")
    assert link.written(Page()) == {}
    assert link.written(page) == {"names": "a,b", "n": "5", "warm": "0.5", "on": "1", "words": ""}
    assert link.read(Page, link.written(page)) == (page, [])


@pytest.mark.parametrize("query, page, sentence", [
    ({"n": "9"}, Page(), "The link has n='9', which was ignored: use a whole number from 1 to 8."),
    ({"n": "-1"}, Page(), "The link has n='-1', which"), ({"n": "9" * 5000}, Page(), "The link has n="),
    ({"n": "3.5"}, Page(), "The link has n='3.5', which"),
    ({"warm": "nan"}, Page(), "The link has warm='nan', which was ignored: use a number from 0 to 2."),
    ({"on": "yes"}, Page(), "The link has on='yes', which was ignored: use 1 or 0."),
    ({"names": "a,c"}, Page(("a",)), "c cannot be chosen"), ({"names": "", "n": "", "warm": ""}, Page(), ""),
    ({"count": "5", "else": "1"}, Page(), "")])
def test_what_does_not_fit_is_left_out_and_said_and_the_rest_holds(query, page, sentence):
    found, faults = link.read(Page, {"words": "kept", **query})
    assert found == Page(page.names, page.count, page.warm, page.on, "kept")
    assert [fault.sentence.startswith(sentence) for fault in faults] == [True] * bool(sentence)


@pytest.mark.parametrize("said, words", [
    ("stpe", "did you mean 'step'?"), ("zebra", "choose one of step, tokens")])
def test_a_word_that_is_none_gets_the_nearest_or_all(said, words):
    with pytest.raises(LabError, match=words.replace("?", r"\?")):
        link.one_of(("step", "tokens"))(said)
    with pytest.raises(LabError, match="choose another one"):
        link.one_of([str(number) * 9 for number in range(link.MOST_LISTED + 1)])("zebra")


def test_a_number_among_some():
    assert link.whole(among=(0, 2))("2") == 2
    with pytest.raises(LabError, match="choose one of 0, 2"):
        link.whole(among=(0, 2))("1")


def test_a_choice_keeps_the_rest_and_goes_when_it_is_the_default(browser):
    browser |= {"run": "a", "n": "2"}
    count = Param("n", 3, link.whole())
    link.put(count, 4)
    assert browser == {"run": "a", "n": "4"} and link.get(count) == 4
    link.put(count, 3)
    assert browser == {"run": "a"} and link.get(count) == 3
    link.put(Param("tab", ""), "Data", default="Data")
    assert browser == {"run": "a"} and link.foreign(Page) == ["run=a"]


def test_two_choices_are_both_there_and_what_is_foreign_goes(browser):
    browser |= {"run": "a", "n": "2"}
    link.turn(Page, warm=0.5)
    link.turn(Page, on=True)
    assert browser == {"n": "2", "warm": "0.5", "on": "1"}
    assert link.read(Page) == (Page(count=2, warm=0.5, on=True), [])


def test_a_refresh_with_the_address_of_before_does_not_undo_choices(browser, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(link.time, "monotonic", lambda: now[0])
    count = Param("n", 3, link.whole())
    browser |= {"n": "1"}
    for value in (2, 4):
        link.put(count, value)
    for late in ("1", "2"):
        browser |= {"n": late}
        assert link.query() == {"n": "4"}
    browser |= {"n": "7"}  # nobody chose it here: another link was opened
    assert link.get(count) == 7
    browser |= {"n": "2"}
    monkeypatch.setattr(link, "_path", lambda: "/there")
    assert link.get(count) == 2, "another page"
    monkeypatch.setattr(link, "_path", lambda: "/here")
    now[0] += link.LATE_SECONDS
    assert link.get(count) == 2, "much later: a new link"
    link.put(count, 4)
    link.go({"n": "2"})
    assert link.get(count) == 2, "another address ends what was looked at"


def test_an_address_to_be_copied(browser):
    assert link.address({"runs": "a,b@2", "model": "x/y", "prompt": "c="}) == "?runs=a,b@2&model=x/y&prompt=c%3D"


def test_a_part_that_fits_speaks_for_itself():
    assert Fault("runs", "a,b", "Two is enough.", partly=True).sentence == "Two is enough."


# ---------------------------------------------------------------- on the pages


def test_every_choice_that_is_not_a_default_is_in_the_link(page):
    test = page("llm", algorithm="ppo", task="add", seed="3", steps="70", beta="0.1")
    assert not test.error
    picked = said_in(test)
    assert picked == {"algorithm": "ppo", "task": "add", "seed": "3", "steps": "70", "beta": "0.1"}


def test_a_link_with_settings_that_do_not_fit_says_so(page):
    test = page("llm", algorithm="gpro", beta="9999999999")
    assert "algorithm=gpro" in test.error[0].value and "β is 1e+10" in test.error[0].value


@pytest.mark.parametrize("query", [{"steps": "0"}, {"seed": "99999999999"}, {"seed": "9" * 5000}, {"seed": "-1"}])
def test_a_link_with_a_number_out_of_bounds_says_so(page, query):
    assert next(iter(query)) in page("llm", **query).error[0].value


def test_a_link_with_a_view_that_there_is_not_shows_the_usual_one(page, lab):
    run_id = seed(lab.store)
    for x, smooth in (("nonsense", "nan"), ("", "5"), ("tokens", "-1")):
        test = page("llm", run=run_id, x=x, smooth=smooth)
        [smoothing] = [slider for slider in test.slider if slider.label == "Smoothing"]
        assert smoothing.value == 0


def test_what_a_link_says_is_shown_as_it_stands(page):
    test = page("llm", task="![x](http://elsewhere/x.png)", model="![x](http://elsewhere/x.png)")
    assert "task=!\\[x\\]" in test.error[0].value
    assert not any("![x]" in element.value for element in (*test.caption, *test.markdown, *test.warning))


def test_a_link_to_a_deleted_run_says_so(page):
    assert "There is no run “gone” here" in page("llm", run="gone").error[0].value
