"""The maze page: its editor, what the board and a cell are given, and the page in every state of a run."""

import json

import pytest
import streamlit as st

from app.maze import cell, drawing, editor
from app.plan import Plan
from app.status import STATES
from labcore.catalog.maze import ALGORITHMS, TASKS
from labcore.classic.envs.maze_presets import corridors, textbook
from labcore.classic.envs.maze_text import drawn, from_rows, from_text, to_text, unfinished
from labcore.classic.tabular.session import TabularSession
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import make
from tests.app.seeding import html, link, mounted, ran
from tests.every import now
from tests.words import says


def records(algorithm: str = "q_learning", task: str = "slippery", steps: int = 4, **knobs) -> list:
    spec = make(kind="maze", algorithm_key=algorithm, task_key=task, steps=steps, knobs={"pace": 0.0, **knobs})
    return [record for record in TabularSession.start(spec).run() if record]


def seed(store, state: str = "finished", message: str = "", algorithm: str = "q_learning", **more) -> str:
    """A run of this process with its rows and pictures, brought into `state`."""
    made = records(algorithm, **more)
    run_id = store.create(make(kind="maze", algorithm_key=algorithm, task_key=more.get("task", "slippery")), mine=True)
    store.set_state(run_id, "running")
    folder = run_folder(run_id) / "samples"
    folder.mkdir(parents=True)
    for record in made:
        store.append(run_id, record, 0.1 * record.step)
        (folder / f"step-{record.step:06d}.json").write_text(json.dumps(record.samples))
    if state != "running":
        store.set_state(run_id, state, message)
    return run_id


def number(test, label: str):
    [box] = [box for box in test.number_input if box.label == label]
    return box


# ---- painting ------------------------------------------------------------------------------------------------------

def test_a_stroke_paints_all_its_cells_and_one_that_begins_on_the_same_clears():
    maze = textbook()
    walled = editor.painted(maze, [(0, 1), (1, 0)], "#", None)
    assert drawn(walled)[0] == ["S#.", "#TG"]
    assert drawn(editor.painted(walled, [(0, 1), (1, 0)], "#", None))[0] == ["S..", ".TG"]
    assert drawn(editor.painted(maze, [(1, 2)], "G", 5.0)) == (["S..", ".TG"], [-10.0, 5.0])
    assert drawn(editor.painted(maze, [(1, 2)], "G", 10.0))[0] == ["S..", ".T."]
    assert drawn(editor.painted(maze, [(0, 2)], "S", None))[0] == ["..S", ".TG"]


def test_a_maze_grows_and_is_cut_at_the_bottom_and_the_right():
    maze = from_rows(["S.", ".G"], slip=0.1)
    grown = editor.resized(maze, 3, 4)
    assert drawn(grown)[0] == ["S...", ".G..", "...."] and grown.slip == 0.1
    assert editor.resized(grown, 2, 2) == maze
    assert drawn(editor.resized(maze, 1, 1))[0] == ["S"]


def test_goals_out_of_reach_are_named():
    assert corridors().caution() == ""
    assert "goal in row 1, column 3 cannot be reached" in from_rows(["S#G"]).caution()
    assert "goals in row 1, column 3 and row 1, column 5" in from_rows(["S#G#G"]).caution()
    assert from_rows(["..G"]).caution() == ""  # that there is no start is said elsewhere


def test_a_maze_without_a_way_says_so_beside_run_and_may_be_run_on_purpose(page, lab):
    test = page("maze", task="own", maze=to_text(from_rows(["S#G"])))
    assert says(html(test), "with warnings.</b>", "goal in row 1, column 3", "cannot be reached")
    test.button(key="do:Run").click()
    assert [row.spec.task for row in ran(test) and lab.store.runs()] == ["own"]


# ---- what the board is given ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_board_and_every_cell_of_every_method(algorithm):
    for record in records(algorithm):
        sample = json.loads(json.dumps(record.samples, allow_nan=False))
        maze = from_text(sample["maze"])
        for heat in drawing.HEATS:
            data = drawing.board(maze, "a", sample, drawing.View(heat), pinned=2)
            assert json.loads(json.dumps(data, allow_nan=False))["pinned"] == 2
            if data["heat"]:
                blank = maze.where("wall", "goal", "trap")
                assert [value is None for value in data["heat"]["values"]] == blank.tolist()
        assert (data["episode"] is None) == (not sample["moves"])
        for state in range(maze.states):
            assert "Row " in cell.panel(maze, sample, state) and cell.HINT not in cell.panel(maze, sample, state)
        assert f"start{cell.HINT}" in cell.panel(maze, sample, None)


def test_what_colours_the_cells():
    maze, sample = textbook(), records("value_iteration", "textbook", 6)[-1].samples
    values = drawing.heat(maze, sample, "values")
    assert values["label"] == "V(s)" and values["scale"] == "sequential" and values["digits"] == 1
    assert drawing.heat(maze, sample, "visits") is None
    error = drawing.heat(maze, sample, "error")
    assert error["label"] == "|V − V*|" and max(value for value in error["values"] if value is not None) < 1e-6
    held = sample | {"truth": [1.0] * 6, "truth_of": "V of the policy, exact", "values": [3.0] * 6}
    error = drawing.heat(maze, held, "error")
    assert error["label"] == "error to V of the policy, exact"
    assert set(error["values"]) == {2.0, None} and drawing.heat(maze, held | {"truth": None}, "error") is None
    assert "V of the policy, exact 1" in cell.panel(maze, held, 0)
    walked = records("q_learning", "corridors")[-1].samples
    assert drawing.heat(corridors(), walked, "values")["scale"] == "signed"
    assert drawing.heat(corridors(), walked, "visits")["scale"] == "log"


def test_the_arrows_are_the_policies_of_the_sample():
    sample = records("q_learning", "textbook", 1)[-1].samples
    maze = textbook()
    greedy = drawing.board(maze, "a", sample, drawing.View(arrows="greedy"))
    behaviour = drawing.board(maze, "a", sample, drawing.View(arrows="policy"))
    assert greedy["arrows"] == sample["greedy"] and not greedy["proportional"]
    assert behaviour["arrows"] == sample["policy"] and behaviour["proportional"]
    assert drawing.board(maze, "a", sample, drawing.View(arrows="none"))["arrows"] is None


def test_a_tall_maze_gets_a_taller_board():
    mazes = textbook(), from_rows(["SG"] + [".."] * 29)
    assert [drawing.board(maze, "a")["height"] for maze in mazes] == [drawing.HEIGHT, drawing.TALLEST]


# ---- the page ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("task", now(TASKS, "textbook", "own"))
def test_each_maze_can_be_edited_and_run_untouched(page, lab, task):
    test = page("maze", task=task)
    assert number(test, "Slip").value is not None and "Ready" in html(test)
    test.button(key="do:Run").click()
    ran(test)
    run, = lab.store.runs()
    assert (run.spec.kind, run.spec.task) == ("maze", task) and link(test)["run"] == run.id


def test_a_changed_maze_is_your_own_goes_into_the_link_and_can_be_undone(page):
    test = page("maze", task="slippery", gamma="0.5")
    number(test, "Rows").set_value(5)
    ran(test)
    assert link(test)["task"] == "own" and link(test)["gamma"] == "0.5"
    assert unfinished(link(test)["maze"]).height == 5
    number(test, "Slip").set_value(0.4)
    ran(test)
    assert unfinished(link(test)["maze"]).slip == 0.4
    for expected in (0.2, None):
        test.button(key="maze:Undo").click()
        ran(test)
        assert "maze" not in link(test) if expected is None else unfinished(link(test)["maze"]).slip == expected
    assert link(test)["task"] == "slippery"
    test.button(key="maze:Redo").click()
    ran(test)
    assert unfinished(link(test)["maze"]).height == 5


def test_another_algorithm_keeps_the_painted_maze(page):
    text = to_text(from_rows(["S.#", "..G"]))
    test = page("maze", task="own", maze=text)
    [box] = [box for box in test.selectbox if box.label == "Algorithm"]
    box.set_value("sarsa")
    ran(test)
    assert link(test)["algorithm"] == "sarsa" and link(test)["maze"] == text


def test_another_algorithm_keeps_the_discount_and_has_its_own_step_size(page):
    test = page("maze", task="slippery")
    number(test, "Slip").set_value(0.1)  # now it is one's own maze, with what suited the preset
    ran(test)
    brought = {"gamma": "0.95", "alpha_decay": "0.6", "random_start": "True"}
    assert brought.items() <= link(test).items()
    for algorithm in ("value_iteration", "q_learning"):
        [box] = [box for box in test.selectbox if box.label == "Algorithm"]
        box.set_value(algorithm)
        ran(test)
        known = {knob.key for knob in ALGORITHMS[algorithm].knobs}
        there = {key: said for key, said in brought.items() if key in known}
        assert there.items() <= link(test).items() and "alpha" not in link(test), algorithm


def test_each_algorithm_of_a_plan_keeps_a_discount_of_its_own(monkeypatch):
    monkeypatch.setattr(st, "session_state", {})
    plan = Plan("maze")
    plan.values["gamma"] = 0.5
    with plan.turned_to("sarsa"):
        plan.values["gamma"] = 0.8
    with plan.turned_to("sarsa"):
        assert plan.values["gamma"] == 0.8
    assert plan.values["gamma"] == 0.5


def test_a_random_maze_is_drawn_anew_when_its_knobs_move(page):
    test = page("maze", task="random")
    [slider] = [slider for slider in test.slider if slider.label == "Rows"]
    slider.set_value(6)
    ran(test)
    assert link(test) == {"task": "random", "height": "6"}
    number(test, "Slip").set_value(0.1)
    ran(test)
    assert unfinished(link(test)["maze"]).height == 6


@pytest.mark.parametrize("rows, words", [
    (["..", ".G"], "has no start"), (["S.", ".."], "has no goal"), (["S#G"], "row 1, column 3 cannot be reached")])
def test_what_is_wrong_with_a_maze_is_said(page, rows, words):
    test = page("maze", task="own", maze=to_text(from_rows(rows)))
    said = html(test) + " ".join(element.value for element in test.warning)
    assert words in said and number(test, "Columns").value == len(rows[0])


def test_a_link_that_was_cut_is_said(page):
    test = page("maze", task="own", maze="S2.~xT")
    assert "cut or changed" in html(test)


@pytest.mark.parametrize("state", now((state for state in STATES if state not in ("queued", "starting")),
                                      "running", "finished"))
def test_each_state_shows_the_board_and_the_cell(page, lab, state):
    test = page("maze", run=seed(lab.store, state, "A sentence about it."))
    assert STATES[state][1] in html(test) and "Row 1, column 1 · start" in html(test)
    assert "Last update" in html(test)
    assert bool([each for each in test.toggle if each.label == "Edit the maze"]) == (
        state not in ("running", "paused"))


def test_a_run_without_pictures_shows_its_maze(page, lab):
    run_id = lab.store.create(make(kind="maze", algorithm_key="q_learning", task_key="cliff"), mine=True)
    test = page("maze", run=run_id)
    assert "appear here with the first step" in " ".join(element.value for element in test.caption)


def test_the_maze_of_an_ended_run_is_edited_for_the_next(page, lab):
    test = page("maze", run=seed(lab.store))
    [switch] = [each for each in test.toggle if each.label == "Edit the maze"]
    switch.set_value(True)
    ran(test)
    number(test, "Columns").set_value(6)
    ran(test)
    test.button(key="do:Run again").click()
    ran(test)
    newest = lab.store.runs()[0]
    assert newest.spec.task == "own" and unfinished(newest.spec.knobs["maze"]).width == 6
    assert newest.spec.knobs["gamma"] == 0.95


def test_colours_and_arrows_are_kept_when_the_page_is_left(page, lab):
    test = page("maze", run=seed(lab.store))
    [colours] = [each for each in test.segmented_control if each.label == "Colours"]
    colours.set_value("error")
    ran(test)
    test.switch_page("../pages/runs.py")
    ran(test)
    test.switch_page("../pages/maze.py")
    ran(test)
    [colours] = [each for each in test.segmented_control if each.label == "Colours"]
    assert colours.value == "error"


def board(test) -> dict:
    """The data of the board."""
    found = (json.loads(each.proto.json)[0] for each in test.get("bidi_component"))
    return next(data for data in found if data and "rows" in data)


def test_a_link_opens_the_same_board(page, lab):
    run_id = seed(lab.store, steps=4)
    test = page("maze", run=run_id, heat="visits", arrows="none", path="off", cell="5", at="2")
    assert board(test)["heat"]["label"] == "visits" and board(test)["arrows"] is None and not board(test)["path"]
    assert board(test)["picked"] == 5 and board(test)["pinned"] == 2 and board(test)["episode"]["step"] == 2
    assert link(test) == {"run": run_id, "heat": "visits", "arrows": "none", "path": "off", "cell": "5", "at": "2"}
    for nonsense in ("x", "-1", "9" * 5000):
        test = page("maze", run=run_id, heat=nonsense, arrows=nonsense, path=nonsense, cell=nonsense, at=nonsense)
        assert board(test)["picked"] is None and board(test)["pinned"] == 0 and board(test)["episode"]["step"] == 4
        assert board(test)["heat"]["label"] == "max Q(s,·)" and board(test)["path"]


@pytest.mark.parametrize("algorithm, axes", [("value_iteration", ["Steps", "Seconds"]),
                                             ("q_learning", ["Steps", "Moves", "Seconds"])])
def test_an_axis_on_which_nothing_moves_is_not_offered(page, lab, algorithm, axes):
    test = page("maze", run=seed(lab.store, algorithm=algorithm))
    [choice] = [each for each in test.segmented_control if each.label == "Horizontal axis"]
    assert list(choice.options) == axes
    assert ("Speed" in [tile["label"] for tile in mounted(test, "tiles")["tiles"]]) == ("Moves" in axes)
