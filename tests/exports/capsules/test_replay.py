"""Replays: every kind of run comes out the same bit for bit, and what does not is found and told."""

import csv
import io
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from labcore.catalog.llm.models import MODELS
from labcore.catalog.metrics import METRICS
from labcore.cli.main import main
from labcore.errors import LabError
from labcore.exports.capsules import packing, replay
from labcore.runs.faults import Ended
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files import uploads
from labcore.runs.files.paths import run_folder
from labcore.runs.fork import fork_spec
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.spec.session import Record
from labcore.runs.store.rows import Step
from labcore.runs.store.store import Store
from labcore.workers.worker import drive
from tests.exports.capsules.tools import SMALL, content, maze, ran, sealed
from tests.llm.tools import TINIER
from tests.words import saying

POLE = {"hidden": 8, "eval_episodes": 1, "rollout_steps": 8}


@pytest.fixture(autouse=True)
def tinier(monkeypatch):
    """A model of random weights that is quick."""
    monkeypatch.setitem(MODELS, "tiny", TINIER)


def again(store: Store, run_id: str, tmp_path: Path, **options) -> replay.Replayed:
    return replay.replay(packing.write(store, run_id, tmp_path / "run.zip"), **options)


def training(store: Store, run_id: str) -> set[str]:
    return {key for row in store.steps_after(run_id) for key in row.metrics if METRICS[key].about == "training"}


def altered(path: Path, change) -> Path:
    """The capsule with `change(rows of metrics.csv)` made, under its true hashes."""
    rows = list(csv.DictReader(io.StringIO(content(path)["metrics.csv"].decode())))
    change(rows)
    table = io.StringIO()
    writer = csv.DictWriter(table, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return sealed(path, {"metrics.csv": table.getvalue().encode()})


# ---------------------------------------------------------------- runs that come out the same


@pytest.mark.parametrize("spec, moves", [
    (maze(), {3: ("alpha", 0.05), 7: ("epsilon", 0.4)}), (maze(8, "value_iteration"), {2: ("gamma", 0.8)}),
    (make(kind="cartpole", algorithm_key="ppo", task_key="CartPole-v1", steps=3, knobs=POLE), {1: ("clip_low", 0.1)}),
    (make(kind="cartpole", algorithm_key="dqn", task_key="CartPole-v1", steps=3, knobs=POLE | {
        "learning_starts": 0, "gradient_steps": 4}), {1: ("gamma", 0.9)}),
    (make(algorithm_key="grpo", task_key="sort", steps=3, knobs=SMALL), {2: ("beta", 0.3)}),
    pytest.param(make(algorithm_key="ppo", task_key="add", steps=3, knobs=SMALL), {1: ("gae_lambda", 0.5)},
                 marks=pytest.mark.long),
    pytest.param(make(algorithm_key="sft", task_key="sort", steps=3, knobs={"eval_prompts": 4}),
                 {2: ("learning_rate", 1e-4)}, marks=pytest.mark.long),
    pytest.param(make(algorithm_key="dpo", task_key="sort", steps=3, knobs={
        "pair_prompts": 16, "group_size": 4, "pairs_per_step": 8, "eval_prompts": 4}),
        {2: ("beta", 0.5)}, marks=pytest.mark.long),
], ids=lambda value: f"{value.kind}-{value.algorithm}" if isinstance(value, RunSpec) else "")
def test_each_kind_of_run_with_its_knobs_moved(store, tmp_path, spec, moves):
    run_id = ran(store, spec, moves)
    keys = {event.payload["knob"] for event in store.events_after(run_id) if event.kind == "knob"}
    assert keys == {key for key, _ in moves.values()}
    verdict = again(store, run_id, tmp_path)
    assert verdict == replay.Replayed(run_id, store.run(run_id).step, len(training(store, run_id)), (), None, ())
    assert Store().run(run_id).state == "finished" and "RL_LAB_STORE" not in os.environ  # in the lab it was in


def test_changes_within_a_batch_are_made_after_the_same_update(store, tmp_path):
    """PPO makes four updates per step. The knob is moved between the second and the third."""
    spec = make(algorithm_key="ppo", task_key="sort", steps=2, knobs=SMALL | {
        "updates_per_batch": 2, "mini_batches": 2, "entropy_coef": 0.5})
    run_id = store.create(spec)
    looks, real = [], store.asked

    def asking(of):
        if of == run_id and store.run(run_id).step == 1:
            looks.append(of)  # first between the two steps, then after each update but the last
            if len(looks) == 3:
                store.ask(run_id, "set", {"knob": "entropy_coef", "value": 0.01})
        return real(of)

    store.asked = asking
    drive(store, run_id)
    [place] = [event.payload for event in store.events_after(run_id) if event.kind == "knob"]
    assert (place["update"], place["between"]) == (4 + 2, 0)
    run = packing.write(store, run_id, tmp_path / "run.zip")
    assert replay.replay(run).matches
    events = content(run)["events.csv"].decode()
    moved = events.replace(f'""update"": {place["update"]}', f'""update"": {place["update"] + 1}')
    assert moved != events
    assert not replay.replay(sealed(run, {"events.csv": moved.encode()})).matches


def test_a_stopped_run_is_replayed_to_where_it_stopped(store, tmp_path):
    run_id = ran(store, maze(1000), {2: ("alpha", 0.3)}, stop=6)
    assert (again(store, run_id, tmp_path).steps, store.run(run_id).step) == (6, 6)
    assert again(store, run_id, tmp_path, steps=4).steps == 4
    for wrong in (0, 7):
        with pytest.raises(LabError, match="holds the steps 1 to 6"):
            again(store, run_id, tmp_path, steps=wrong)


def test_a_run_that_was_stopped_and_went_on_with_another_value(store, tmp_path):
    run_id = ran(store, maze(12), {2: ("alpha", 0.3)}, stop=6)
    store.requeue(run_id, {"alpha": 0.7, "epsilon": 0.2})
    assert drive(store, run_id) == "finished"
    verdict = again(store, run_id, tmp_path)
    assert verdict.matches and verdict.steps == 12 and not verdict.overtaken


def test_a_capsule_of_a_run_that_is_going(store, tmp_path):
    run_id = store.create(maze(12))

    def on_record(of: str, record: Record, seconds: float) -> None:
        if record.step == 5:
            store.ask(run_id, "set", {"knob": "alpha", "value": 0.1})  # later than what the capsule holds
        if record.step == 4:
            packing.write(store, run_id, tmp_path / "run.zip")

    drive(store, run_id, on_record=on_record)
    assert replay.replay(tmp_path / "run.zip").steps == 4


def test_the_lab_that_it_is_run_in_is_left_alone(store, tmp_path, monkeypatch):
    path = packing.write(store, ran(store, maze(3)), tmp_path / "run.zip")
    url = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    monkeypatch.setenv("RL_LAB_STORE", url)
    assert replay.replay(path).matches
    assert os.environ["RL_LAB_STORE"] == url and not (tmp_path / "elsewhere.db").exists()


def test_the_pace_at_which_it_was_watched_does_not_count(store, tmp_path):
    run_id = ran(store, maze(6, pace=8.0), {2: ("pace", 5.0), 3: ("alpha", 0.3)})
    seconds = []
    def watch(_): return lambda run, record, at: seconds.append(at)
    assert again(store, run_id, tmp_path, watch=watch).matches
    assert seconds[-1] < store.run(run_id).seconds > 0.9  # which it waited


def test_forks_twins_and_fresh_ones_and_forks_of_forks(store, tmp_path):
    parent = ran(store, make(algorithm_key="grpo", task_key="sort", steps=1, knobs=SMALL))
    twin = ran(store, fork_spec(store, parent, 1, knobs={"beta": 0.3}, steps=3), {2: ("beta", 0.0)})
    fresh = ran(store, fork_spec(store, twin, 3, algorithm="rloo", twin=False, steps=4))
    store.delete(parent)
    for run_id, steps in ((twin, 2), (fresh, 1)):
        verdict = again(store, run_id, tmp_path)
        assert verdict.matches and verdict.steps == steps


def test_the_users_file_and_model_come_along(store, tmp_path):
    data = uploads.keep("sums.jsonl", b"".join(b'{"prompt": "%d+1=", "answer": "%d"}\n' % (n, n + 1) for n in range(9)))
    sums = make(algorithm_key="sft", task_key="prompts", data=str(data), steps=3,
                knobs={"eval_prompts": 4, "max_new_tokens": 8})
    base = ran(store, sums)
    model = tmp_path / "model"
    checkpoint.newest(run_folder(base))[1].joinpath("policy").rename(model)
    run_id = ran(store, make(algorithm_key="grpo", task_key="prompts", data=str(data), model=str(model), steps=3,
                             knobs=SMALL))
    path = packing.write(store, run_id, tmp_path / "run.zip")
    model.rename(tmp_path / "elsewhere")
    data.unlink()
    assert replay.replay(path).matches


def test_a_held_out_file_comes_along(store, tmp_path):
    rows = [b'{"prompt": "%d+1=", "answer": "%d"}\n' % (n, n + 1) for n in range(9)]
    data, second = uploads.keep("sums.jsonl", b"".join(rows[:6])), uploads.keep("sums.jsonl", b"".join(rows[6:]))
    run_id = ran(store, make(algorithm_key="sft", task_key="prompts", data=str(data), steps=2, knobs={
        "eval_prompts": 4, "max_new_tokens": 4, "held_out_file": second.parent.name}))
    assert store.steps_after(run_id)[0].metrics["held_out/rows"] == 3
    path = packing.write(store, run_id, tmp_path / "run.zip")
    for gone in (second.unlink, lambda: shutil.rmtree(second.parent)):
        gone()
        with pytest.raises(LabError, match=f"The held-out file of the run {run_id} is gone.*: export it without --cap"):
            packing.write(store, run_id, tmp_path / "without.zip")
    shutil.rmtree(uploads.root())
    assert replay.replay(path).matches
    assert any("held_out/loss" in row.metrics for row in store.steps_after(run_id))


def test_a_resumed_run_and_the_steps_that_it_went_back_on(store, tmp_path, monkeypatch):
    """Broken after step 8 with a checkpoint of step 5, resumed from there with another value."""
    from labcore.classic.tabular.session import TabularSession

    real, broken = TabularSession.run, []

    def run(self):
        for record in real(self):
            yield record
            if self.step == 8 and not broken:
                broken.append(True)
                raise Ended("diverged", "for a test")

    monkeypatch.setattr(TabularSession, "run", run)
    run_id = store.create(maze(12))
    moves = {5: ("epsilon", 0.5), 7: ("alpha", 0.2)}  # each change leaves a checkpoint before it

    def on_record(of: str, record: Record, seconds: float) -> None:
        if record.step in moves:
            store.ask(run_id, "set", dict(zip(("knob", "value"), moves[record.step], strict=True)))

    assert drive(store, run_id, on_record=on_record) == "diverged"
    shutil.rmtree(run_folder(run_id) / "checkpoints" / "step-000007")
    store.requeue(run_id, {"alpha": 0.9})
    assert drive(store, run_id) == "finished"
    assert [event.payload["from"] for event in store.events_after(run_id) if event.kind == "resumed"] == [5]
    verdict = again(store, run_id, tmp_path)
    assert verdict.matches and verdict.overtaken == (6, 7, 8) and verdict.steps == 9


def test_where_nothing_can_be_compared_there_is_no_answer(store, tmp_path, monkeypatch, capsys):
    path = packing.write(store, ran(store, maze(4)), tmp_path / "run.zip")
    monkeypatch.setattr(replay, "overtaken", lambda events, steps: {1, 2, 3})
    assert replay.replay(path).steps == 1
    assert main(["replay", str(path), "--steps", "3"]) == 2
    assert "can be compared" in capsys.readouterr().err


# ---------------------------------------------------------------- what comes out otherwise


@pytest.mark.parametrize("key, change", [("td_error", lambda text: repr(float(text) * (1 + 2**-52))),
                                         ("env_steps", lambda text: str(int(text) + 1)), ("td_error", lambda text: "")])
def test_the_first_number_that_differs_is_named(store, tmp_path, key, change):
    path = packing.write(store, ran(store, maze(6)), tmp_path / "run.zip")
    kept = []

    def alter(rows):
        for row in rows[3:]:
            kept.append(row[key])
            row[key] = change(row[key])

    verdict = replay.replay(altered(path, alter))
    wrong = change(kept[0])
    assert verdict.difference == replay.Difference(4, key, float(wrong) if wrong else None, float(kept[0]))
    assert not verdict.matches and verdict.steps == 4 and verdict.causes == ()
    assert replay.replay(path, steps=3).matches


def test_what_the_machine_did_is_not_compared(store, tmp_path):
    path = packing.write(store, ran(store, maze(4)), tmp_path / "run.zip")

    def alter(rows):
        for row in rows:
            row["memory"], row["seconds"] = "1.0", "9999.0"

    assert replay.replay(altered(path, alter)).matches


def test_a_replay_that_ends_early(store, tmp_path):
    path = packing.write(store, ran(store, maze(4)), tmp_path / "run.zip")

    def alter(rows):
        rows.append(rows[-1] | {"step": "5"})

    sealed(altered(path, alter), step=5)
    assert replay.replay(path).difference == replay.Difference(5, "", None, None)


def test_causes_are_what_has_changed_the_likeliest_first():
    before = {"torch": "2.1", "python": "3.11", "threads": 4, "device": "cpu", "new": 1}
    now = {"torch": "2.2", "python": "3.11", "threads": 2, "device": "cpu"}
    assert replay.changed(before, now) == ("torch (2.1 then, 2.2 now)", "the number of threads (4 then, 2 now)")


def test_zero_has_a_sign_and_a_number_may_be_missing():
    row = Step(1, 5, 0, 0.0, {"reward": 0.0, "memory": 1.0})
    assert replay.first_difference(row, Record(1, 5, {"reward": 0.0, "memory": 2.0})) is None
    assert replay.first_difference(row, Record(1, 5, {"reward": -0.0})).metric == "reward"
    assert replay.first_difference(row, Record(1, 6, {"reward": 0.0})).metric == "tokens"
    assert replay.first_difference(row, Record(1, 5, {"reward": 0.0, "kl": 1.0})) == replay.Difference(1, "kl", None, 1)


def test_a_model_too_large_for_the_capsule(store, tmp_path, monkeypatch):
    base = ran(store, make(algorithm_key="sft", task_key="sort", steps=1, knobs={"eval_prompts": 4}))
    model = tmp_path / "some-model"
    checkpoint.newest(run_folder(base))[1].joinpath("policy").rename(model)
    run_id = ran(store, make(algorithm_key="grpo", task_key="sort", model=str(model), steps=2, knobs=SMALL))
    monkeypatch.setattr(packing, "LARGEST", 1000)
    path = packing.write(store, run_id, tmp_path / "run.zip")
    assert path.stat().st_size < 20_000
    with pytest.raises(LabError, match=saying("'some-model'", "too large", "run.zip", "give its folder")):
        replay.replay(path)
    assert replay.replay(path, model=str(model)).matches
    first = dict(checkpoint.steps(run_folder(base)))[0] / "policy"
    verdict = replay.replay(path, model=str(first))
    assert not verdict.matches and "the model, whose weights are others" in verdict.causes[0]


def test_a_run_that_cannot_be_made_here(store, tmp_path):
    path = packing.write(store, ran(store, make(algorithm_key="sft", task_key="sort", steps=2, knobs={
        "eval_prompts": 4})), tmp_path / "run.zip")
    if replay.versions.here().get("device") == "cpu":
        with pytest.raises(LabError, match="has no mps device"):
            replay.replay(path, device="mps")
    assert not list(run_folder("x").parent.glob("*replay*"))


def test_a_light_capsule_is_made_again_from_its_spec(store, tmp_path):
    run_id = ran(store, make(algorithm_key="grpo", task_key="sort", steps=2, knobs=SMALL))
    path = packing.write(store, run_id, tmp_path / "run.zip", light=True)
    assert not [name for name in content(path) if name.startswith(("checkpoints/", "samples/"))]
    assert path.stat().st_size < 20_000 and replay.replay(path).matches
    fork = replace(store.run(run_id).spec, parent=(run_id, 2), steps=4)
    assert packing.starts_anew(store.run(run_id).spec) and not packing.starts_anew(fork)
    labelled = make(algorithm_key="reward_model", task_key="sort", steps=2)
    named = replace(labelled, knobs={**labelled.knobs, "labelled_pairs": "/somewhere/labels.jsonl"})
    assert packing.starts_anew(labelled) and not packing.starts_anew(named), "only its checkpoint has the labels"
