"""Another run behind the curves: which one it is, how it is sent, and the twin of a run without its last change."""

from dataclasses import replace

import pytest

from app.training import ghost
from app.training.chart_data import GHOST, payload
from app.training.feed import Feed
from labcore.runs import fork
from labcore.runs.files.paths import run_folder
from labcore.runs.knob_history import KnobHistory, Place
from labcore.runs.store.rows import STUDIES, Step
from tests.app.seeding import seed
from tests.words import says


def charted(test):
    """The ids of the runs that the charts of a page got."""
    return test.session_state["charted"]


def test_the_run_before_stands_behind_the_curves_until_it_is_switched_off(page, lab):
    first, second = seed(lab.store, "finished"), seed(lab.store, "finished")
    assert charted(page("llm", run=second)) == [second, first]
    assert charted(page("llm", run=first)) == [first], "there was none before it"
    assert charted(page("llm", run=second, ghost="none")) == [second]
    third = seed(lab.store, "finished")
    assert charted(page("llm", run=third, ghost=first)) == [third, first], "chosen"
    test = page("llm", run=third, ghost="deleted")
    assert charted(test) == [third, second], "as the choice beside the charts says"
    assert next(box for box in test.selectbox if box.label == "Run behind the curves").value == ""


def test_a_run_of_a_study_is_the_ghost_of_its_like_alone(page, lab):
    first, study, run_id, other = (seed(lab.store, "finished") for _ in range(4))
    for each in (study, other):
        lab.store.mark(each, project=STUDIES)
    assert charted(page("llm", run=run_id)) == [run_id, first]
    assert charted(page("llm", run=other))[0] == other and len(charted(page("llm", run=other))) == 2


def test_a_run_of_another_task_is_no_ghost(page, lab):
    other = seed(lab.store, "finished", task="add")
    run_id = seed(lab.store, "finished")
    assert charted(page("llm", run=run_id)) == [run_id] == charted(page("llm", run=run_id, ghost=other))


def test_a_ghost_is_sent_in_grey_with_its_name_and_without_markers(lab):
    run, behind = (Feed(lab.store.run(seed(lab.store, "finished")).spec) for _ in range(2))
    for each in (run, behind):
        each.take([Step(1, 1, 0, 1.0, {"reward": 0.5})], [])
    data = payload({"a": run}, full=True, x="step", smooth=0.0, ended=True, ghost={"b": behind})
    assert data["runs"]["b"]["ghost"] and not data["runs"]["a"]["ghost"] and data["runs"]["b"]["rows"]
    assert data["key"] == "a+b" and not any(mark["run"] == "b" for mark in data["markers"])
    assert data["runs"]["b"]["colour"] == [*GHOST] != data["runs"]["a"]["colour"]


def turned(lab):
    """A run whose β went from 0.04 to 0.2 in step 3, with the checkpoint of step 2."""
    run_id = seed(lab.store, "finished")
    folder = run_folder(run_id) / "checkpoints" / "step-000002"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text("{}")
    run = lab.store.run(run_id)
    return run, KnobHistory(run.spec, lab.store.events_after(run_id))


def feed_of(spec, rewards, first=1):
    feed = Feed(spec)
    feed.take([Step(at, at, 0, float(at), {"reward": value, "exact_match": value, "kl": 0.1 * value})
               for at, value in enumerate(rewards, first)], [])
    return feed


def test_the_twin_is_a_fork_with_the_same_random_numbers_and_the_old_value(lab, monkeypatch):
    run, history = turned(lab)
    change = history.moves[-1]
    assert change.step == 3 and fork.steps_to_fork(run.id) == [2]
    spec = fork.fork_spec(lab.store, run.id, 2, knobs={"beta": change.before}, steps=run.spec.steps)
    twin = lab.store.create(spec, mine=True)
    found = ghost.twin_of(run, change, history.at(None))
    assert found is not None and found.id == twin and found.spec.twin and found.spec.knobs["beta"] == 0.04
    other = fork.fork_spec(lab.store, run.id, 2, knobs={"beta": 1.0})
    lab.store.create(other, mine=True)
    assert ghost.twin_of(run, change, history.at(None)).id == twin, "another fork is no twin"


def test_the_help_names_the_changes_that_the_twin_keeps(lab):
    run, history = turned(lab)
    first = history.moves[-1]
    later = replace(first, knob="clip_low", place=Place(5, 8, 1), before=0.2, value=0.1)
    assert "any difference is due to the change" in ghost._twin_help(run, first, [])
    said = ghost._twin_help(run, later, [first])
    assert "at step 2" in said and "(β 0.04 → 0.2)" in said and "any difference" not in said


def test_a_button_starts_the_twin_in_the_background_and_draws_it(page, lab, monkeypatch):
    run, _ = turned(lab)
    started = []

    def start(spec, *more):
        started.append(lab.store.create(spec, mine=True))
        return started[0]
    monkeypatch.setattr(lab.launcher, "start", start)
    test = page("llm", run=run.id)
    assert any("β 0.04 → 0.2 after step 2" in each.value for each in test.markdown)
    test.button(key="effect:twin").click().run()
    assert not test.exception and len(started) == 1
    twin = lab.store.run(started[0])
    assert twin.spec.parent == (run.id, 2) and twin.spec.knobs["beta"] == 0.04 and twin.spec.twin
    assert run.id in test.query_params["run"] and charted(test) == [run.id, twin.id]
    assert "effect:twin" not in [each.key for each in test.button], "one twin is enough"
    for _ in range(2):
        later = seed(lab.store, "finished")
    back = page("llm", run=run.id)
    assert charted(back) == [run.id, twin.id], "found again on a page that was left"
    assert "effect:show" not in [each.key for each in back.button]
    assert next(box for box in back.selectbox if box.label == "Run behind the curves").value == ""
    assert charted(page("llm", run=run.id, ghost=later)) == [run.id, later], "unless another one is chosen"


@pytest.mark.parametrize(("rewards", "expected"), [
    ([0.5, 0.5], "is at step 2"), ([], "is starting"), ([0.5, 0.5, 0.9], "−70.0 points (20 % vs 90 %)"),
])
def test_the_effect_is_said_with_its_size_and_without_a_claim(lab, rewards, expected):
    run, history = turned(lab)
    said = ghost.effect(history.moves[-1], feed_of(run.spec, [0.5, 0.5, 0.2]), feed_of(run.spec, rewards), True)
    assert expected in said and ("This is one seed" in said) == (len(rewards) == 3)
    assert "β 0.2 instead of 0.04, step 3:" in said or "The grey run, without β 0.04 → 0.2," in said
    assert len(rewards) == 3 or "came after step 2." in said, "where the marker is drawn"


def test_the_effect_is_a_mean_of_the_last_steps_since_the_change(lab):
    run, history = turned(lab)
    with_it, without = feed_of(run.spec, [1, 1, 0, 0, 0.5, 0.5]), feed_of(run.spec, [1] * 20)
    said = ghost.effect(history.moves[-1], with_it, without, False)
    assert says(said, "steps 3 to 6", "reward (exact match)", "−75.0 points", "25 %", "100 %",
                "KL to the reference", "−0.075", "0.025", "0.100")
