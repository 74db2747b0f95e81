"""Titles of runs, as people read them."""

from dataclasses import replace

import pytest
from sqlalchemy.exc import OperationalError

from labcore.catalog.kinds import KINDS
from labcore.errors import LabError
from labcore.runs.lists.all_runs import Shelf
from labcore.runs.lists.search import search
from labcore.runs.spec.run_spec import make
from labcore.runs.store.schema import runs
from labcore.runs.store.store import Store
from labcore.runs.titles import parent_title, title, titles, with_id, with_ids, with_titles


def grpo(**knobs):
    return make(algorithm_key="grpo", task_key="sort", knobs=knobs)


def test_a_title_has_a_number_of_its_own_and_never_changes(store):
    runs = [store.run(store.create(spec)) for spec in (
        grpo(), grpo(beta=0.1), make(algorithm_key="grpo", task_key="sort", mix="Mine, softly"),
        make(kind="maze", algorithm_key="q_learning", task_key="cliff"))]
    assert [title(run) for run in runs] == [
        "GRPO sort #1", "GRPO sort #2", "Mine, softly sort #3", "Q-learning cliff #4"]
    assert with_id(runs[0]) == f"GRPO sort #1 ({runs[0].id})"
    store.delete(runs[1].id)
    fork = store.run(store.create(replace(runs[0].spec, parent=(runs[0].id, 0))))
    assert title(fork) == "GRPO sort #5" and title(store.run(runs[2].id)) == "Mine, softly sort #3"
    assert parent_title(store, fork.spec) == "GRPO sort #1" and parent_title(store, runs[0].spec) == ""
    store.trash([runs[0].id])
    assert parent_title(store, fork.spec) == "GRPO sort #1", "as long as it can be restored"
    store.delete(runs[0].id)
    assert parent_title(store, fork.spec) == runs[0].id and titles(store, [runs[0].id, fork.id]) == {
        fork.id: "GRPO sort #5"}


def test_the_runs_of_a_sweep_are_counted_within_it(store):
    """A lesson or a sweep leaves no gap in the numbers of single runs; each title is still that of one run."""
    first = store.create(grpo())
    many = store.create_all([grpo(), grpo(beta=0.1)], sweep="sweep-8606ab")
    others = store.create_all([grpo()], sweep="sweep-00ff00")
    last = store.create(grpo())
    more = store.create(grpo(beta=0.2), sweep="sweep-8606ab")
    assert [title(store.run(run_id)) for run_id in (first, *many, *others, last, more)] == [
        "GRPO sort #1", "GRPO sort #8606ab.1", "GRPO sort #8606ab.2", "GRPO sort #00ff00.1", "GRPO sort #2",
        "GRPO sort #8606ab.3"]
    assert with_titles(f"See {many[1]}@60.", lambda: store) == "See GRPO sort #8606ab.2 at step 60."


def test_runs_of_a_sweep_that_were_counted_among_all_keep_their_titles(store):
    """As an earlier version of the lab left them."""
    old = store.create_all([grpo()], sweep="sweep-8606ab")
    with store._writing() as connection:
        connection.execute(runs.update().where(runs.c.id == old[0]), {"number": 7})
    assert title(store.run(old[0])) == "GRPO sort #7"
    assert title(store.run(store.create(grpo(), sweep="sweep-8606ab"))) == "GRPO sort #8606ab.1"


def test_a_sentence_calls_runs_by_their_titles(store):
    one, two = store.create(grpo()), store.create(grpo())
    assert with_titles(f"The run {one} is finished: see “{two}”, {one}@60.", lambda: store) == (
        "The run GRPO sort #1 is finished: see “GRPO sort #2”, GRPO sort #1 at step 60.")
    assert with_titles(f"{one} has no step.", lambda: store, ids=True) == f"GRPO sort #1 ({one}) has no step."
    store.trash([one])
    rest = f"was deleted: restore it (python -m labcore restore {one}, or on Runs)."
    assert with_titles(f"The run {one} {rest}", lambda: store) == f"The run GRPO sort #1 {rest}"


@pytest.mark.parametrize("said", ["/home/{0}/worker.log", "{0}.capsule.zip", "base:{0}", "llm?run={0}&x=1/{0}-merged",
                                  "python -m labcore fork {0} --set beta=0", "Its id {0} was taken.",
                                  "grpo-sort-0000000", "No run here."])
def test_what_is_no_prose_keeps_its_ids(store, said):
    sentence = said.format(store.create(grpo()))
    assert with_titles(sentence, lambda: store) == sentence


def test_runs_are_named_with_their_ids_by_one_query(store, monkeypatch):
    one, two = store.create(grpo()), store.create(grpo())
    store.trash([two])
    asked, read = [], Store.runs_named
    monkeypatch.setattr(Store, "runs_named", lambda *given, **named: (asked.append(1), read(*given, **named))[1])
    assert with_ids(store, [two, "imported-a-1234", one]) == [
        f"GRPO sort #2 ({two})", "imported-a-1234", f"GRPO sort #1 ({one})"]
    assert len(asked) == 1


@pytest.mark.parametrize("fault", [LabError("The store cannot be read."), PermissionError(13, "no"),
                                   OperationalError("SELECT", {}, Exception("no such function"))])
def test_a_sentence_without_an_id_opens_no_store_and_one_about_a_broken_store_keeps_them(fault):
    def broken():
        raise fault
    assert with_titles("The learning rate is 0.1.", broken) == "The learning rate is 0.1."
    assert with_titles("The run grpo-sort-8606 is gone.", broken) == "The run grpo-sort-8606 is gone."


@pytest.mark.parametrize("kind", KINDS)
def test_a_title_is_found_by_the_search_and_finds_no_other_run(store, kind):
    """Whatever the algorithms are called, and though #1 begins #10."""
    row = KINDS[kind]
    for algorithm in row.algorithms.values():
        task = next(key for key, each in row.tasks.items() if algorithm.loop in each.loops)
        store.create(make(kind=kind, algorithm_key=algorithm.key, task_key=task))
    entries = Shelf(store).entries()
    for entry in entries:
        assert search(entries, entry.title) == [entry] == search(entries, entry.id), entry.title
        assert search(entries, f'"{entry.title}"') == [entry] == search(entries, f'run="{entry.title}"')
