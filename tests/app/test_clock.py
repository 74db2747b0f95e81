"""One clock: whatever a page that trains shows is of the same step."""

import json
from types import SimpleNamespace

import pytest

from app.training import clock, files
from app.training.feed import MOST, Feed
from app.training.status_line import line
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import Step
from tests.app.seeding import link, mounted, ran, samples, seed
from tests.every import now


def sampled(run_id: str, step: int, text: str) -> None:
    content = samples() | {"step": step}
    content["groups"][0]["completions"][0]["text"] = text
    (run_folder(run_id) / "samples" / f"step-{step:06d}.json").write_text(json.dumps(content))


@pytest.mark.parametrize("state", now(["running", "paused", "finished"], "running"))
def test_everything_shows_the_step_of_the_link(page, lab, state):
    run_id = seed(lab.store, state)
    sampled(run_id, 2, "twotwo")
    newest = page("llm", run=run_id)
    assert mounted(newest, "marks")["at"] is mounted(newest, "tiles")["at"] is None
    assert "twotwo" not in json.dumps(mounted(newest, "kinds"))
    test = page("llm", run=run_id, at="3")
    assert mounted(test, "marks")["at"] == mounted(test, "tiles")["at"] == 3
    microscope = mounted(test, "kinds")
    assert "twotwo" in json.dumps(microscope) and microscope["of"] == "Step 2, the nearest before step 3"
    data = page("llm", run=run_id, at="3", tab="Data")
    assert list(data.dataframe[0].value["step"]) == [3, 2, 1]


def test_a_step_before_the_first_file_has_none(page, lab):
    test = page("llm", run=seed(lab.store, "finished"), at="3")  # its samples are of step 5
    assert not [each for each in test.get("bidi_component") if "kinds" in json.loads(each.proto.json)[0]]


@pytest.mark.parametrize("at", now(["6", "7", "999", "0", "x", "-1"], "6", "x"))
def test_the_last_step_and_what_is_none_are_the_newest(page, lab, at):
    test = page("llm", run=seed(lab.store, "finished"), at=at)
    assert mounted(test, "marks")["at"] is mounted(test, "tiles")["at"] is None


def test_the_equation_has_the_knobs_of_the_step(page, lab):
    run_id = seed(lab.store, "finished")  # β goes from 0.04 to 0.2 for step 3
    shown = [mounted(page("llm", run=run_id, tab="Equation", at=at), "beside") for at in ("2", "4")]
    betas = [term["now"] for data in shown for term in data["terms"] if term.get("knob") == "beta"]
    assert betas == ["0.04 reward/nat", "0.2 reward/nat"]


@pytest.mark.parametrize("state", ["starting", "running", "finished"])
def test_status_and_tiles_come_with_the_rows_of_the_charts(page, lab, state):
    """By one message: else they would be of another step for a moment."""
    run_id = seed(lab.store, state)
    data = mounted(page("llm", run=run_id), "tiles")
    rows = data["runs"][run_id]["rows"]
    assert f"<b>{state.capitalize()}</b>" in data["status"]
    assert state != "running" or f"step {rows[-1][0]} of 10" in data["status"]
    assert not rows or {tile["key"] for tile in data["tiles"]} <= {*rows[-1][3], "frac_reward_zero_std"}


def test_the_status_is_of_the_newest_row_not_of_the_run_as_it_was_read_before(lab):
    run = lab.store.run(seed(lab.store, "running"))
    feed = Feed(run.spec)
    feed.take([*lab.store.steps_after(run.id), Step(7, 700, 0, 3.5, {"updates": 7.0})], [])
    assert run.step == 6 and "step 7 of 10" in line(run, feed) and "width:70.0%" in line(run, feed)


def test_an_earlier_step_is_not_that_of_the_next_run(page, lab):
    first, second = seed(lab.store, "finished"), seed(lab.store, "finished")
    test = page("llm", run=first, at="3")
    next(box for box in test.selectbox if box.label == "Run").select(second)
    assert "at" not in link(ran(test)) and mounted(test, "marks")["at"] is None


@pytest.mark.parametrize("button", now(["Step", "Resume"], "Step"))
def test_who_steps_or_resumes_sees_what_comes(page, lab, button):
    run_id = seed(lab.store, "paused")
    test = page("llm", run=run_id, at="3")
    next(each for each in test.button if each.label == button).click()
    assert "at" not in link(ran(test)) and lab.store.asked(run_id)[-1].command == button.lower()


def test_the_scrubber_has_the_steps_and_the_knobs_changes(page, lab):
    run_id = seed(lab.store, "running")
    data = mounted(page("llm", run=run_id), "marks")
    assert (data["first"], data["last"], data["total"], data["going"]) == (1, 6, 10, True)
    assert data["marks"] == [[3, "β 0.04 → 0.2"]]


def test_the_newest_file_at_or_before_a_step(lab):
    run_id = lab.store.create(make(algorithm_key="grpo", task_key="sort", steps=10))
    (run_folder(run_id) / "samples").mkdir(parents=True)
    assert files.newest(run_id, "samples", 9) is None
    for step in (1, 5, 1_000_000):
        (run_folder(run_id) / "samples" / f"step-{step:06d}.json").write_text(json.dumps({"step": step}))
    wanted = {0: None, 1: 1, 4: 1, 5: 5, 999_999: 5, 2_000_000: 1_000_000}
    assert {step: (files.newest(run_id, "samples", step) or {}).get("step") for step in wanted} == wanted


def test_a_run_without_rows_has_no_scrubber(page, lab):
    test = page("llm", run=seed(lab.store, "starting"), at="3")
    assert not any("marks" in json.loads(each.proto.json)[0] for each in test.get("bidi_component"))


def test_a_step_of_the_sft_stage_is_none_of_the_run_itself(monkeypatch):
    link_at = {"at": 3}
    monkeypatch.setattr(clock.link, "get", lambda param: link_at["at"])
    monkeypatch.setattr(clock.link, "put", lambda param, value: link_at.update(at=value))
    monkeypatch.setattr(clock.st, "session_state", {})
    spec = make(algorithm_key="grpo", task_key="sort", steps=10)
    feed = Feed(spec)
    feed.take([Step(step, 0, 0, 0.0, {}) for step in range(1, 9)], [])
    run, base = SimpleNamespace(id="run"), SimpleNamespace(id="base")
    assert [clock.of(run, base, feed), clock.of(run, base, feed), clock.of(run, run, feed)] == [3, 3, None]
    link_at["at"] = 5  # of another run, which a link opens
    assert clock.of(base, base, feed) == 5


def test_of_a_long_run_it_is_a_step_that_is_drawn(monkeypatch):
    feed = Feed(make(algorithm_key="grpo", task_key="sort", steps=10))
    feed.take([Step(step, 0, 0, 0.0, {}) for step in range(1, 4 * MOST)], [])
    drawn = {row[0] for row in feed.rows(0)}
    for at in (2, 1001, 4 * MOST - 2):
        monkeypatch.setattr(clock.link, "get", lambda param, at=at: at)
        assert clock.chosen(feed) in drawn | {1} and clock.chosen(feed) <= at
