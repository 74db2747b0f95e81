"""Projects: a label that groups runs, which forks and capsules keep; the lab's own runs stay out of the lists."""

import pytest

from labcore.analysis.studies import plan
from labcore.analysis.studies.rows import STUDIES as TABLE
from labcore.errors import LabError
from labcore.runs import sweep
from labcore.runs.lists import marks
from labcore.runs.lists.all_runs import Shelf
from labcore.runs.lists.entries import grouped
from labcore.runs.lists.search import search
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import LESSONS, STUDIES
from labcore.runs.store.store import Store
from tests.runs.lists.tools import ended


def found(store: Store, query: str) -> set[str]:
    return {entry.id for entry in search(Shelf(store).entries(), query)}


def test_a_project_groups_runs_and_can_be_searched_and_left(store):
    one, two, other = ended(store), ended(store), ended(store)
    marks.assign(store, [one, two], "  my   paper ")
    assert store.projects() == {"my paper": 2} and store.run(one).project == "my paper"
    assert found(store, 'project="my paper"') == found(store, "paper") == {one, two}
    by_value = {group.value: {entry.id for entry in group.entries} for group in grouped(Shelf(store).entries(),
                                                                                        "project")}
    assert by_value == {"my paper": {one, two}, None: {other}}
    marks.assign(store, [one], "")
    assert store.projects() == {"my paper": 1} and store.run(two).project == "my paper"


def test_runs_of_lessons_and_studies_are_left_out_unless_they_are_asked_for(store):
    mine = ended(store)
    study = plan.queue(store, plan.missing(TABLE["samples"], plan.found(TABLE["samples"], []))[:1])
    [theirs] = [row.id for row in store.sweep_runs(study)]
    assert store.run(theirs).project == STUDIES
    assert found(store, "") == {mine}
    for query in (f"project={STUDIES}", theirs, f"sweep={study}"):
        assert found(store, query) == {theirs}
    assert [each.id for each in sweep.sweeps(store)] == [study] and sweep.sweeps(store, apart=False) == []
    marks.assign(store, [theirs], "mine now")
    assert found(store, "") == {mine, theirs}


@pytest.mark.parametrize("name", [LESSONS, STUDIES.lower(), "x" * 41, 'a "quote"', "a\0b"])
def test_a_name_that_no_project_can_have_is_one_sentence(store, name):
    with pytest.raises(LabError, match="project"):
        marks.assign(store, [run := ended(store)], name)
    assert store.run(run).project == ""


def test_a_fork_belongs_to_the_project_of_its_parent_but_not_to_a_lessons(store):
    spec = make(algorithm_key="grpo", task_key="sort", steps=5)
    for project, kept in (("paper", "paper"), (LESSONS, "")):
        parent = store.create(spec, project=project)
        fork = store.create(make(algorithm_key="grpo", task_key="sort", steps=5, parent=(parent, 0)))
        assert store.run(fork).project == kept


def test_a_sweep_has_a_name_of_its_owners_beside_its_early_stopping(store):
    specs = sweep.grid(make(algorithm_key="grpo", task_key="sort", steps=5), {"beta": [0, 0.1]}, [0])
    named = sweep.queue(store, specs, name="β of the paper", project="paper")
    plain = sweep.queue(store, specs)
    assert sweep.sweep(store, named).title == "β of the paper" and sweep.sweep(store, plain).title == plain
    assert {row.project for row in store.sweep_runs(named)} == {"paper"}
    assert store.halvings() == {} and sweep.early_stopping(store, named) is None
    store.name_sweep(plain, "second")
    store.name_sweep(named, "")
    assert [each.name for each in sweep.sweeps(store)] == ["second", ""]
