"""Forking from the page: where it begins, what it says it will show, and the tree that the charts draw."""

from dataclasses import replace

import pytest

from app.training import forking
from app.training.chart_data import branch, payload
from app.training.feed import Feed
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.runs.files import atomic, checkpoints
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from labcore.runs.fork import fork_spec
from labcore.runs.spec.session import Record
from labcore.runs.store.rows import Event
from tests.app.seeding import html, ran, seed
from tests.every import now


def checkpointed(store, state="finished", at=(0, 2, 5), **more) -> str:
    """A seeded run with a β marker at step 3 and checkpoints."""
    run_id = seed(store, state, **more)
    for step in at:
        checkpoint.save(run_folder(run_id), step, lambda folder: None, marked=at)
    atomic.write_text(run_folder(run_id) / "spec.json", store.run(run_id).spec.to_json())
    return run_id


def child_of(store, run_id, step=2, rows=2, **given) -> str:
    child = store.create(fork_spec(store, run_id, step, **given), mine=True)
    store.set_state(child, "running")
    for at in range(step + 1, step + 1 + rows):
        store.append(child, Record(at, 100 * at, {"reward": 0.5, "updates": float(at)}), 0.5 * at)
    return child


def feed_of(store, run_id) -> Feed:
    feed = Feed(store.run(run_id).spec)
    feed.take(store.steps_after(run_id), store.events_after(run_id))
    return feed


def drawn(store, *ids, **more):
    return payload({run_id: feed_of(store, run_id) for run_id in ids}, **{
        "full": True, "x": "updates", "smooth": 0.0, "ended": False, **more})


def opened(page, lab, run_id, event=None):
    test = page("llm", run=run_id)
    if event is None:
        test.button(key="do:Fork").click()
    else:
        test.session_state[forking.OPEN] = forking.Wish(run_id, tuple(forking.fork.steps_to_fork(run_id)), event)
    return ran(test)


def marker(store, run_id) -> Event:
    return next(event for event in store.events_after(run_id) if event.kind == "knob")


def test_the_parent_of_an_open_fork_is_named_by_the_row_that_is_there(page, lab, monkeypatch):
    """The page draws the line anew twice a second."""
    child = child_of(lab.store, checkpointed(lab.store))
    monkeypatch.setattr(forking, "parent_title", None)
    assert "<b>GRPO sort #1</b>" in html(page("llm", run=child))


def test_the_parent_that_was_deleted_keeps_its_title(page, lab):
    parent = checkpointed(lab.store)
    child = child_of(lab.store, parent)
    lab.store.trash([parent])
    shown = html(page("llm", run=child))
    assert "<b>GRPO sort #1</b>" in shown and "which was deleted" in shown


def box(test, words):
    [found] = [box for box in test.selectbox if box.label == words]
    return found


def button(test):
    return next((button for button in test.button if button.label.startswith("Fork from step")), None)


def test_the_button_forks_from_before_the_last_marker_and_opens_the_child(page, lab):
    parent = checkpointed(lab.store)
    test = opened(page, lab, parent)
    assert box(test, "From step").value == 2 and button(test).label == "Fork from step 2"
    assert any("without β 0.04 → 0.2" in caption.value for caption in test.caption)
    button(test).click()
    ran(test)
    child, _ = lab.store.runs()
    assert child.spec == fork_spec(lab.store, parent, 2) and child.spec.twin
    assert test.query_params["run"] in (child.id, [child.id])
    assert forking.OPEN not in test.session_state
    assert "forked from" in html(test) and "<b>GRPO sort #1</b>" in html(test)


def test_a_marker_asks_what_if_with_the_value_of_before(page, lab):
    parent = checkpointed(lab.store)
    test = opened(page, lab, parent, marker(lab.store, parent).id)
    assert any("What if β** had been … from step 2" in each.value for each in test.markdown)
    price = next(each for each in test.number_input if "values" not in each.key and each.key.startswith("knob:fork:"))
    assert price.value == 0.04
    price.set_value(0.1)
    ran(test)
    assert any("β 0.04 → 0.1" in caption.value for caption in test.caption)
    button(test).click()
    ran(test)
    assert lab.store.runs()[0].spec.knobs["beta"] == 0.1
    assert lab.store.runs()[0].spec.parent == (parent, 2)


def test_another_algorithm_and_fresh_random_numbers(page, lab):
    parent = checkpointed(lab.store)
    test = opened(page, lab, parent)
    assert box(test, "Continue with").options == [row.label for row in ALGORITHMS.values()]
    box(test, "Continue with").select("ppo")
    ran(test)
    assert any("PPO in place of GRPO" in caption.value for caption in test.caption)
    test.button_group[-1].set_value(False)
    ran(test)
    button(test).click()
    ran(test)
    spec = lab.store.runs()[0].spec
    assert (spec.algorithm, spec.twin, spec.seed) == ("ppo", False, 1)


def test_a_run_without_a_checkpoint_says_what_to_wait_for(page, lab):
    test = opened(page, lab, seed(lab.store))
    assert button(test) is None and "no checkpoint to fork from" in test.info[0].value
    test = opened(page, lab, seed(lab.store, "failed"))
    assert button(test) is None and "ended before its first checkpoint" in test.info[0].value


def test_where_nothing_is_left_from_before_the_marker_it_says_so(page, lab):
    parent = checkpointed(lab.store, at=(4, 6))
    test = opened(page, lab, parent, marker(lab.store, parent).id)
    assert "No checkpoint is left from before β 0.04 → 0.2" in test.info[0].value
    assert box(test, "From step").value == 4


@pytest.mark.parametrize("there, said", [
    ((0, 2, 5), ["0", "2 · before β 0.04 → 0.2", "5"]), ((0, 3, 5), ["0 · before β 0.04 → 0.2", "3", "5"])])
def test_a_checkpoint_says_which_change_comes_after_it(lab, there, said):
    """The marker's step is 3: the checkpoint of step 2 is from before it, that of step 3 has it."""
    changes = feed_of(lab.store, checkpointed(lab.store, at=there)).history.moves
    assert [forking._about(step, there, changes) for step in there] == said


def test_a_knob_turned_twice_within_a_step_is_one_marker_and_one_change_of_the_dialog(page, lab):
    parent = checkpointed(lab.store)
    lab.store.log(parent, "knob", {"knob": "beta", "from": 0.2, "to": 0.3, "update": 2, "between": 0, "text": ""}, 3)
    assert [mark["text"] for mark in drawn(lab.store, parent)["markers"]] == ["β 0.04 → 0.3"]
    test = opened(page, lab, parent, marker(lab.store, parent).id)
    assert "2 · before β 0.04 → 0.3" in box(test, "From step").options


@pytest.mark.parametrize("first, warned, offered", now([(2, False, 0.04), (3, True, 0.04)], (3, True, 0.04)))
def test_the_marker_is_undone_even_where_the_first_checkpoint_has_it(page, lab, first, warned, offered):
    parent = checkpointed(lab.store, at=(first, 6))
    test = opened(page, lab, parent, marker(lab.store, parent).id)
    assert any("No checkpoint is left" in each.value for each in test.info) is warned
    beta = next(each for each in test.number_input if each.key.startswith("knob:fork:"))
    assert beta.value == offered and fork_spec(lab.store, parent, first).knobs["beta"] == (0.2 if warned else 0.04)


def test_the_dialog_stays_open_while_the_page_is_drawn_again_and_closes_for_good(page, lab):
    parent = checkpointed(lab.store, "running")
    test = opened(page, lab, parent)
    lab.store.set_state(parent, "finished")
    assert button(ran(test))
    lab.store.delete(parent)
    assert button(ran(test)) is None


def test_parent_and_child_are_drawn_as_one_tree(lab):
    parent = checkpointed(lab.store)
    child = child_of(lab.store, parent, knobs={"beta": 0.1})
    data = drawn(lab.store, child, parent)
    own, above = data["runs"][child], data["runs"][parent]
    assert own["rows"][0] == above["rows"][1] and [row[0] for row in own["rows"]] == [2, 3, 4]
    assert (own["root"], own["parent"], own["muted"]) == (2, parent, False)
    assert (above["root"], above["muted"]) == (None, True)
    assert above["colour"] == drawn(lab.store, parent)["runs"][parent]["colour"] != own["colour"]
    assert [(mark["run"], mark["text"], mark["step"]) for mark in data["markers"]] == [
        (child, "fork: β 0.1", 2), (parent, "β 0.04 → 0.2", 2)]
    assert [mark["beside"] for mark in data["markers"]] == [False, True], "the fork has not seen the change"
    assert [mark["beside"] for mark in drawn(lab.store, parent)["markers"]] == [False]
    assert data["markers"][0]["event"] is None and data["markers"][1]["event"] == marker(lab.store, parent).id


def test_what_stands_at_the_ends_of_lines_is_this_run_its_parent_and_the_numbers_of_the_others(lab):
    oldest = checkpointed(lab.store)
    parent = child_of(lab.store, oldest)
    child = lab.store.create(fork_spec(lab.store, oldest, 2), mine=True)
    spec = replace(lab.store.run(child).spec, parent=(parent, 4))
    feeds = {child: Feed(spec), parent: feed_of(lab.store, parent), oldest: feed_of(lab.store, oldest)}
    named = {run_id: lab.store.run(run_id) for run_id in feeds}
    runs = payload(feeds, full=True, x="updates", smooth=0, ended=False, named=named)["runs"]
    assert [each["short"] for each in runs.values()] == ["this run", "parent", "#1"]
    assert runs[oldest]["label"] == "GRPO sort #1"


def test_later_rows_come_without_the_root_and_before_the_first_row_with_it(lab):
    parent = checkpointed(lab.store)
    child = child_of(lab.store, parent, rows=0)
    feeds = {run_id: feed_of(lab.store, run_id) for run_id in (child, parent)}
    assert [row[0] for row in payload(feeds, full=False, x="updates", smooth=0, ended=False)["runs"][child]["rows"]] \
        == [2]
    feeds[child].sent = 60
    assert payload(feeds, full=False, x="updates", smooth=0, ended=False)["runs"][child]["rows"] == []


def test_a_fork_from_before_the_first_row_or_of_a_deleted_parent_is_drawn_by_itself(lab):
    parent = checkpointed(lab.store)
    child = child_of(lab.store, parent, step=0)
    assert drawn(lab.store, child, parent)["runs"][child]["root"] is None
    assert drawn(lab.store, child)["runs"][child]["colour"] == drawn(lab.store, parent)["runs"][parent]["colour"]


@pytest.mark.parametrize("given, words", [
    ({}, ""), ({"twin": False}, ": fresh"), ({"knobs": {"beta": 0.3, "temperature": 0.7}}, ": β 0.3, τ 0.7"),
    ({"algorithm": "ppo"}, ": PPO"),
])
def test_a_branch_says_what_is_another_there(lab, given, words):
    parent = checkpointed(lab.store)
    spec = fork_spec(lab.store, parent, 2, **given)
    assert branch(spec, feed_of(lab.store, parent)) == words


def test_a_marker_stands_before_the_first_step_that_it_counts_for(lab):
    run_id = seed(lab.store)
    [mark] = drawn(lab.store, run_id)["markers"]
    assert mark["step"] == marker(lab.store, run_id).step - 1


@pytest.mark.long
def test_a_checkpoint_without_its_optimizer_says_so_before_the_fork(page, lab):
    parent = checkpointed(lab.store)
    folder = checkpoint.at(run_folder(parent), 2)
    (folder / "optimizer_policy.safetensors").write_bytes(checkpoints.DROPPED)
    said = "The checkpoint of step 2 holds the weights without the optimizer state, to save disk space: the fork " \
           "starts with a new optimizer state."
    test = opened(page, lab, parent)
    assert any(said == caption.value for caption in test.caption)
    box(test, "From step").select(5)
    assert not any("optimizer state" in caption.value for caption in ran(test).caption)
