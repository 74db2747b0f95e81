"""Any text in an address: what fits is taken, and comes back as it was; what does not is said in one sentence."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import app.compare.place
import app.exact.bench
import app.foundations.page
import app.lessons.place
import app.playground.place
import app.runs.state
import app.studies.page
import app.surrogate.place
from app import draft, link
from app.compare.launch import planning
from app.compare.one_batch import batch
from labcore.catalog.kinds import KINDS
from labcore.runs.spec.run_spec import knobs_of
from tests.made_up.values import JSON, WORDS, answered, few, fewer

PAGES = [app.compare.place.Place, app.exact.bench.Bench, app.foundations.page.Place, app.lessons.place.Place,
         app.playground.place.Place, app.runs.state.View, app.studies.page.Place, app.surrogate.place.Place,
         batch.Batch]
TEXTS = st.one_of(WORDS, JSON, st.sampled_from(["1", "0.5", "1,2,3", "0.2,0.3,0.5", "1e400", "-1", "grpo", "tiny"]))


def said(keys):
    return st.dictionaries(st.sampled_from(sorted(keys)), TEXTS, max_size=6)


def check(faults):
    for fault in faults:
        assert len(fault.sentence.splitlines()) == 1 and len(fault.sentence) < 1500, fault


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.__module__)
def test_a_page(page):
    @fewer
    @given(said(each.key for each in link.params(page).values()))
    def holds(address):
        found, faults = link.read(page, address)
        check(faults)
        again, none = link.read(page, link.written(found))
        assert link.written(again) == link.written(found) and not none

    holds()


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.key)
def test_the_settings_of_a_run(kind):
    row, task = kind.algorithms[kind.algorithm], kind.tasks[kind.task]
    declared = [*draft._choices(kind), *draft._knobs(knobs_of(row, task))]

    @few
    @given(said(each.key for each in declared))
    @example({"model": "x" * 300, "seed": "9" * 5000})
    def holds(address):
        values, faults = link.parsed(declared, address)
        check(faults)
        assert values.keys() <= address.keys()

    holds()


@few
@given(st.one_of(TEXTS, st.dictionaries(st.sampled_from(sorted(planning.LINKED)), TEXTS).map(json.dumps)))
@example("[" * 200_000)
def test_a_new_comparison(text):
    found = answered(planning.of_link, text)
    assert found is None or found.keys() <= planning.LINKED.keys()


@few
@given(st.lists(st.tuples(WORDS, WORDS).map("=".join), max_size=4).map(";".join))
def test_one_batch(text):
    found, faults = batch.read(text, ["a", "b"])
    check(faults)
    assert found.model in ("", "a", "b")
