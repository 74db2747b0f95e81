"""The page Runs: what is listed, searched, ordered, grouped and said of a run."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import streamlit as st

from app import link as address
from app.runs import table as runs_table
from app.runs.actions import volume
from app.runs.details import differences
from app.runs.state import PICKED, View, chosen, steady
from labcore.catalog.amounts import percent
from labcore.catalog.kinds import KINDS
from labcore.runs.files.paths import run_folder
from labcore.runs.fork import fork_spec
from labcore.runs.imports import imported
from labcore.runs.lists.entries import grouped
from labcore.runs.spec.run_spec import make
from tests.app.runs_page import labels, press, rows, said, select
from tests.app.seeding import link, ran, seed
from tests.every import now
from tests.runs.imports import files
from tests.runs.lists.tools import CSV, entry
from tests.words import says


def test_each_run_is_a_row_with_what_it_is_and_how_it_fares(page, lab):
    run_id = seed(lab.store, "finished", seed=3)
    lab.store.mark(run_id, star=True, tags=["paper"], note="Two\nlines")
    imported.keep(lab.store, "trl.csv", CSV)
    table = page("runs").dataframe[0].value
    assert list(table["run"]) == ["trl", "GRPO sort #1"]
    row = table.iloc[1]
    assert (row["star"], *row["state"], row["algorithm"], row["task"], row["seed"], row["step"], row["steps"]) == (
        "★", "Finished", "GRPO", "Sort letters", 3, 6, 10)
    assert (row["metric"], round(row["last"], 6), round(row["best"], 6)) == ("Reward (exact match)", 0.6, 0.6)
    assert row["note"] == "Two lines"
    assert list(row["tags"]) == ["paper"] and len(row["curve"]) == 6 and row["size"] > 0
    assert (*table.iloc[0]["state"], table.iloc[0]["metric"], table.iloc[0]["last"]) == ("Imported", "Reward", 0.4)


def test_runs_of_a_sweep_are_told_apart_by_their_settings(page, lab):
    for knobs in ({"beta": 0.1}, {"beta": 0.2}, {}):
        seed(lab.store, "finished", knobs=knobs)
    table = page("runs").dataframe[0].value.set_index("run")["algorithm"]
    assert table.to_dict() == {
        "GRPO sort #1": "GRPO β 0.1", "GRPO sort #2": "GRPO β 0.2", "GRPO sort #3": "GRPO"}


def test_columns_without_a_value_take_no_room():
    assert not {"tags", "note", "star"} & set(runs_table.frame([entry()]).columns)
    assert {"tags", "note"} <= set(runs_table.frame([entry(tags=("a",), note="b"), entry("c")]).columns)


LONG = {"run_id": "b", "title": "Monte Carlo control corridors #12345", "algorithm": "Monte Carlo control",
        "state": "interrupted", "settings": "α 0.25, ε 0.3, decay of α 0.55", "task": "Your own preferences",
        "seed": 123_456, "step": 99_999, "steps": 100_000, "last": -0.0012345, "best": -0.0012345,
        "seconds": 123_456.0, "star": True, "tags": ("paper", "baseline"), "note": "The one for the figure."}


@pytest.mark.parametrize("more, framed", [({}, False), (LONG, False), (LONG, True)])
def test_all_columns_up_to_the_time_are_seen_at_once_in_a_window_of_1280(more, framed):
    more = dict(more)
    found = runs_table.frame([entry(), entry(more.pop("run_id", "b"), **more)])
    wide = runs_table.widths(found, framed)
    first = list(found)[:list(found).index("duration") + 1]
    assert {"run", "state", "curve", "last", "step"} < set(first)
    page, boxes = 1280 - 2 * 19 - (runs_table.FRAME if framed else 0), 33
    assert boxes + sum(wide[key] for key in first) <= page
    assert all(wide[key] <= runs_table.TEXTS[key][1] for key in wide if key in runs_table.TEXTS)


def test_a_column_is_as_wide_as_what_is_in_it():
    short, long = ({**runs_table.widths(runs_table.frame([entry(title=name)]))} for name in ("a" * 16, "a" * 20))
    assert long["run"] - short["run"] == 4 * runs_table.LETTER and long["task"] == short["task"]


def test_the_link_holds_search_filters_groups_and_order(page, lab):
    low, high = (seed(lab.store, "finished", knobs={"beta": beta}) for beta in (0.02, 0.1))
    failed = seed(lab.store, "failed", algorithm="ppo")
    lab.store.mark(low, star=True)
    assert rows(page("runs")) == [failed, high, low]
    assert rows(page("runs", find="beta>0.05 grpo")) == [high]
    assert rows(page("runs", state="failed,diverged")) == [failed]
    assert rows(page("runs", kind="maze")) == [] and rows(page("runs", star="1")) == [low]
    assert rows(page("runs", order="id")) == [low, high, failed]
    test = page("runs", group="beta", state="finished")
    assert rows(test) == [low, high] and len(test.dataframe) == 2
    assert [header.label for header in test.expander] == [
        f"β = {beta} · 1 run · reward (exact match): mean of last 60 %, of best 60 %" for beta in ("0.02", "0.1")]


def test_what_is_typed_and_chosen_goes_into_the_link(page, lab):
    run_id = seed(lab.store, "finished")
    test = page("runs")
    test.text_input[0].set_value("  rloo ")
    ran(test)
    assert link(test)["find"] == "rloo" and rows(test) == [] and "None of the 1 runs matches" in said(test)
    test.text_input[0].set_value("")
    ran(test)
    assert "find" not in test.query_params and rows(test) == [run_id]
    groups = next(box for box in test.selectbox if box.label == "Group by")
    assert "KL coefficient β" in groups.options
    groups.set_value("beta")
    ran(test)
    assert link(test)["group"] == "beta" and len(test.expander) == 1
    next(box for box in test.selectbox if box.label == "Order by").set_value("last")
    ran(test)
    assert link(test)["order"] == "-last"


def test_the_usual_order_has_a_name_and_leaves_the_newest_first_to_the_other_one(page, lab):
    going, ended = seed(lab.store, "paused"), seed(lab.store, "finished")
    test = page("runs")
    order = next(box for box in test.selectbox if box.label == "Order by")
    assert rows(test) == [going, ended] and order.value == "going" and "Running, then newest" in order.options
    assert not [each for each in test.toggle if each.label == "Newest first"], "it has no direction"
    order.set_value("started")
    assert link(ran(test))["order"] == "-started" and rows(test) == [ended, going]
    assert next(each for each in test.toggle if each.label == "Newest first").value
    next(box for box in test.selectbox if box.label == "Order by").set_value("going")
    assert "order" not in ran(test).query_params and rows(test) == [going, ended]


@pytest.mark.parametrize("before, key, after", [
    (None, "algorithm", "algorithm"), (None, "last", "-last"), ("last", "best", "best"),
    *(pytest.param(*each, marks=pytest.mark.long) for each in (
        (None, "id", "id"), ("-last", "task", "task"), ("-last", "best", "-best"),
        ("-task", "algorithm", "-algorithm"), ("task", "seed", "-seed")))])
def test_texts_begin_with_a_and_numbers_with_the_largest(page, lab, before, key, after):
    seed(lab.store, "finished")
    test = page("runs", **({"order": before} if before else {}))
    next(box for box in test.selectbox if box.label == "Order by").set_value(key)
    assert link(ran(test))["order"] == after


def test_a_run_is_found_by_its_title_and_by_its_id(page, lab):
    runs = [seed(lab.store, "finished") for _ in range(10)]
    assert rows(page("runs", find="GRPO sort #1")) == rows(page("runs", find=runs[0])) == [runs[0]]


def test_a_search_that_cannot_be_read_says_why_and_a_link_that_does_not_fit_shows_all(page, lab):
    run_id = seed(lab.store, "finished")
    test = page("runs", find="betta=1")
    assert rows(test) == [] and "try beta=1" in said(test)
    assert rows(press(test, "runs:all")) == [run_id] and "find" not in test.query_params
    test = page("runs", group="nonsense", order="nonsense", state="running", view="deleted", run="gone", find="x")
    assert "The link says group=nonsense and order=nonsense and run=gone, which matches nothing" in said(test)
    test = page("runs", group="nonsense", order="nonsense", state="nonsense", view="nonsense")
    assert rows(test) == [run_id] and "state=nonsense and view=nonsense" in said(test)
    for group in ("best", "ε"):  # "best" cannot group runs; several knobs have the symbol ε
        assert f"The link says group={group}, which" in said(page("runs", group=group))
    assert "The link" not in said(page("runs", group="β"))
    assert "The link" not in said(page("runs", group="beta", order="-last", state="finished,failed", star="1"))


@pytest.mark.parametrize("query, found", [
    ({}, View()), ({"find": "a b", "star": "1", "view": "deleted"}, View("a b", star=True, deleted=True)),
    ({"state": "running,nothing", "kind": "maze"}, View(states=("running",), kinds=("maze",))),
    ({"order": "last", "group": "beta"}, View(order="last", group="beta")), ({"group": "β"}, View(group="beta")),
    ({"group": "best"}, View()), ({"order": "-shoe"}, View())])
def test_the_view_of_a_link(query, found):
    assert address.read(View, query)[0] == found


def test_chosen_entries_are_those_of_the_view_in_its_order():
    one, two = entry("a", last=0.1, star=True), entry("b", last=0.9, state="failed")
    assert chosen([one, two], View(order="-last")) == [two, one]
    assert chosen([one, two], View(star=True)) == [one] == chosen([one, two], View(states=("finished",)))
    assert chosen([one, two], View(kinds=("maze",))) == []


def test_what_goes_or_is_paused_comes_first_unless_another_order_is_asked_for():
    found = [entry(state, state=state, created=created) for created, state in enumerate(
        ("queued", "paused", "running", "finished", "failed"))]
    assert [each.id for each in chosen(found, View())] == ["running", "paused", "failed", "finished", "queued"]
    assert [each.id for each in chosen(found, View(order="started"))] == [each.id for each in found]


def test_a_table_of_more_rows_than_are_seen_ends_within_a_row():
    inside = [(runs_table.tall(count) - runs_table.HEAD - 2) % runs_table.ROW for count in (3, 14, 15, 500)]
    assert inside[:2] == [0, 0] and all(0.3 < part / runs_table.ROW < 0.7 for part in inside[2:])


def test_rows_keep_their_places_while_numbers_change(monkeypatch):
    monkeypatch.setattr(st, "session_state", {})
    one, two, three = (entry(name, last=last) for name, last in (("a", 0.1), ("b", 0.9), ("c", 0.5)))
    now = View(order="-last")
    assert steady([two, one], now) == [two, one] == steady([one, two], now)
    assert steady([one, two], View(order="last")) == [one, two], "another order was asked for"
    assert steady([three, one, two], View(order="last")) == [three, one, two], "another run is there"


@pytest.mark.parametrize("count, compared", now([(1, True), (9, True), (65, False)], (1, True), (65, False)))
def test_as_many_runs_can_be_compared_as_a_comparison_starts(page, lab, count, compared):
    ids = [seed(lab.store, "finished", steps=1) for _ in range(count)]
    test = select(page("runs"), *ids)
    link = next(link.proto for link in test.get("page_link") if link.proto.label == "Compare")
    assert link.disabled != compared and set(link.query_string.split("=")[1].replace("%2C", ",").split(",")) == set(ids)
    assert ("Playground" in labels(test)) == (count <= 3)


def test_the_open_button_of_a_row_opens_the_run_of_that_row(page, lab, monkeypatch):
    seed(lab.store, "finished")
    run_id = seed(lab.store, "finished")
    test = page("runs")
    test.session_state["runs:open"] = run_id
    ran(test)
    assert link(test)["run"] == run_id and "Run again" in labels(test)


def test_a_selection_counts_for_the_rows_it_was_made_on(monkeypatch):
    drawn = {}
    monkeypatch.setattr(st, "dataframe", lambda frame, **more: drawn.update(more))
    monkeypatch.setattr(st, "session_state", state := {PICKED: ["elsewhere"]})
    runs_table.table([entry("a"), entry("b"), entry("c")])
    first = drawn["key"]
    state[first] = SimpleNamespace(selection=SimpleNamespace(rows=[0, 2]))
    drawn["on_select"]()
    assert state[PICKED] == ["elsewhere", "a", "c"]
    runs_table.table([entry("new"), entry("a"), entry("c")])
    assert drawn["key"] != first and drawn["selection_default"] == {"selection": {"rows": [1, 2]}}


def test_details_of_a_queued_run_name_those_that_hold_the_places_and_link_them(page, lab):
    waiting, holder = lab.store.create(make(algorithm_key="grpo", task_key="sort")), seed(lab.store)
    lab.store.set_waiting({waiting: 1})
    test = press(select(page("runs"), waiting), "act:details")
    assert f"waiting for a free place: [GRPO sort #2](llm?run={holder}) (running) holds it" in said(test)
    assert [waiting] == [code.value for code in test.code if code.value == waiting], "the id, for commands"


def test_forks_are_grouped_by_the_title_of_their_parent(page, lab):
    parent = seed(lab.store, "finished")
    lab.store.create(replace(lab.store.run(parent).spec, parent=(parent, 4)))
    assert "parent = GRPO sort #1" in " ".join(each.label for each in page("runs", group="parent").expander)


def test_details_show_settings_and_forks(page, lab):
    parent = seed(lab.store, "finished")
    (run_folder(parent) / "checkpoints" / "step-000004").mkdir(parents=True)
    child = lab.store.create(fork_spec(lab.store, parent, 4, knobs={"beta": 0.3}))
    test = press(select(page("runs"), child), "act:details")
    assert {"GRPO sort #1", "**GRPO sort #2**"} <= set(labels(test))
    html = " ".join(element.proto.body for element in test.get("html"))
    assert "from step 4 · β 0.2 → 0.3 · queued at step 0" in html, "against its parent's value at that step"
    assert "KL coefficient" in html
    fresh = fork_spec(lab.store, parent, 4, twin=False)
    for step in (2, 3):  # right before and right after the first step that the moved knob counts in
        (run_folder(parent) / "checkpoints" / f"step-{step:06d}").mkdir()
        twin = fork_spec(lab.store, parent, step)
        assert differences(lab.store.run(parent).spec, twin, step) == ["nothing changed"]
    assert differences(lab.store.run(parent).spec, fresh, 4) == [f"fresh random numbers, seed {fresh.seed}"]


def test_details_tell_the_outcome_and_what_was_turned(page, lab):
    run_id = seed(lab.store, "finished")
    test = press(select(page("runs"), run_id), "act:details")
    html = " ".join(element.proto.body for element in test.get("html"))
    last = lab.store.steps_after(run_id, 0)[-1]
    assert f"{percent(last.metrics['reward'])} at step {last.step}, best" in html
    assert "<th>turned</th><td>β 0.04 → 0.2 at step 3</td>" in html


def test_details_of_an_import_say_what_was_taken(page, lab):
    about, = imported.keep(lab.store, "trl.csv", CSV)
    test = press(select(page("runs"), about.id), "act:details")
    html = " ".join(element.proto.body for element in test.get("html"))
    assert "<th>not known to the lab</th><td>secret</td>" in html and "Imported from trl.csv" in said(test)


def test_details_of_an_import_say_what_the_doctor_finds_and_why_numbers_stay_in_the_file(page, lab):
    about, = imported.keep(lab.store, "log.csv", files.NAN_LOSS)
    test = press(select(page("runs"), about.id), "act:details")
    assert "**Problem**" in said(test) and "Loss is NaN: loss NaN from step 21 on" in said(test)
    about, = imported.keep(lab.store, "progress.csv", files.SB3_EVAL)
    test = press(select(page("runs"), about.id), "act:details")
    html = " ".join(element.proto.body for element in test.get("html"))
    assert "<th>the steps are read from time/total_timesteps</th><td>time/iterations</td>" in html


def test_without_runs_there_is_an_action(page, lab):
    test = page("runs")
    assert "No runs yet" in said(test) and "Import" in labels(test)
    press(test, "runs:first")
    assert "Run" in labels(test)


@pytest.mark.parametrize("value, words", [
    (0.02, "beta = 0.02"), (None, "without beta"), (("a", "b"), "beta = a, b"), (True, "beta"), (False, "not beta")])
def test_a_group_is_called_by_its_value(value, words):
    group, = grouped([entry(knobs={} if value is None else {"beta": value}, last=None, best=None)], "beta")
    assert runs_table.group_title("beta", group) == f"{words} · 1 run"


def test_the_group_s_means_are_told_by_metric():
    group, = grouped([entry(last=0.4, best=0.5), entry("b", metric="value_error", last=2.0, best=1.0)], "seed")
    assert says(runs_table.group_title("seed", group), "seed = 0", "2 runs", "reward", "last 0.400",
                "best 0.500 (1 run)", "error of V", "last 2.000", "best 1.000 (1 run)")


def test_every_state_and_kind_has_a_name_and_sizes_are_told_in_units():
    assert {*runs_table.NAMES} == {*runs_table.COLOURS} and set(KINDS) <= {"llm", "exact", "maze", "cartpole"}
    assert [volume(size) for size in (0, 999_949, 2e6)] == ["0 kB", "1.0 MB", "2.0 MB"]
