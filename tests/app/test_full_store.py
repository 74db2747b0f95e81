"""A full store. Its list of 40 runs takes as many database queries as a list of 10; the browser gets one page of it."""

import pytest

from app.runs import table
from app.runs.state import PICKED
from labcore.cli.main import main
from labcore.runs import summary
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import Event, RunRow, Step
from tests.app.seeding import ran, seed
from tests.queries import counted

FEW, MANY = 10, 40


def fill(store, places) -> None:
    """Ended runs of two rows, as workers leave them."""
    specs = [make(algorithm_key="grpo", task_key="sort", steps=2, seed=seed) for seed in range(5)]
    for place in places:
        run_id = f"grpo-sort-{place:04d}"
        row = RunRow(run_id, specs[place % 5], "finished", "", created=float(place), started=0.0, ended=1.0, pid=None,
                     host=None, heartbeat=None, step=2, seconds=1.0, base=None)
        store.add(row, [Step(step, 10 * step, 0, 0.5 * step, {"reward": 0.1 * step}) for step in (1, 2)],
                  [Event(0, 2, "finished", {"text": "done"}, 1.0)])
        summary.keep(store, run_id)


@pytest.fixture
def asked(lab):
    """asked(view) -> how many queries `view` makes with few runs in the store, and with many."""
    def both(view) -> tuple[int, int]:
        found = []
        for places in (range(FEW), range(FEW, MANY)):
            fill(lab.store, places)
            with counted() as queries:
                view()
            found.append(len(queries))
        return found[0], found[1]
    return both


def test_lists_ask_as_often_for_many_runs_as_for_few(asked, page, lab, capsys):
    def views():
        main(["runs"])
        page("runs")  # which its server has not seen before

    few, many = asked(views)
    assert 0 < few == many
    assert capsys.readouterr().out.count("finished") == FEW + MANY
    found = page("runs")
    with counted() as queries:
        ran(found)
    assert len(queries) <= many


def test_many_runs_are_shown_in_pages(page, lab, monkeypatch):
    monkeypatch.setattr(table, "PAGE", 4)
    fill(lab.store, range(10))
    test = page("runs")
    names = [f"GRPO sort #{number}" for number in range(10, 0, -1)]
    assert list(test.dataframe[0].value["run"]) == names[:4]
    assert "1 to 4 of 10 runs" in " ".join(element.value for element in test.caption)
    [pager] = test.get("pagination")
    assert pager.proto.num_pages == 3
    test.session_state["runs:page::3"] = 3
    ran(test)
    assert list(test.dataframe[0].value["run"]) == names[8:]
    picked = ["grpo-sort-0009", "grpo-sort-0000"]
    test.session_state[PICKED] = picked
    ran(test)
    assert test.session_state[PICKED] == picked, "what is chosen on another page stays chosen"


def test_few_runs_have_no_pages(page, lab):
    fill(lab.store, range(3))
    assert not page("runs").get("pagination")


def test_the_rows_of_an_ended_run_are_read_once_for_all_tabs(page, lab, monkeypatch):
    run_id, read = seed(lab.store, "finished"), []
    steps_after = lab.store.steps_after_many
    monkeypatch.setattr(type(lab.store), "steps_after_many",
                        lambda _, after: read.extend(after.items()) or steps_after(after))
    for _ in range(2):
        page("llm", run=run_id)
    assert [step for run, step in read if run == run_id].count(0) == 1
