"""What a run really used at every update, against all that says which value of a knob counted at which step.

The session itself is watched while it trains: which knobs it holds at each optimizer update, how many completions it
samples at each step. Nothing here reads an event: the page, the CSV, the fork, the capsule and the comparison do.
"""

import csv
import json
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import pytest

from app.compare.lines import marks_of
from app.training.chart_data import payload
from app.training.feed import Feed
from labcore.analysis.compare.groups import groups
from labcore.analysis.compare.loading import Reader, load
from labcore.catalog.kinds import KINDS
from labcore.catalog.llm.models import MODELS
from labcore.classic.tabular import loops
from labcore.classic.tabular.td_learner import TDLearner
from labcore.exports.capsules import packing, replay
from labcore.exports.folder import export_run
from labcore.exports.handover.plan import plan_of
from labcore.llm import experience
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from labcore.runs.fork import fork_spec, steps_to_fork
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.steering import Steering
from labcore.workers.worker import drive
from tests.llm.tools import TINIER
from tests.runs import fake
from tests.workers.tools import asker, kinds

LLM = {"sft_steps": 3, "prompts_per_step": 4, "group_size": 4, "max_new_tokens": 4, "updates_per_batch": 3,
       "learning_rate": 1e-3}
POLE = {"hidden": 8, "eval_episodes": 1, "environments": 4, "rollout_steps": 8, "epochs": 2, "learning_rate": 1e-3,
        "anneal": False}
Change = tuple[int, int, str, Any, Any]  # (step, updates made before it, knob, from, to)


class Watched:
    """What the sessions of one loop used: {step: {updates made before: knobs}}, and the completions of each step.

    `at` maps (step, which of its updates) to what is done in the middle of that update.
    """

    def __init__(self, monkeypatch, spec: RunSpec):
        self.spec, self.steps, self.completions, self.sampled = spec, {}, {}, 0
        self.at: dict[tuple[int, int], Callable[[], None]] = {}
        watched, session = self, resolve_name(KINDS[spec.kind].session)
        optimise = session.optimise

        def optimising(self, name, learning_rate, loss):
            if self.spec.algorithm == spec.algorithm and name == "policy":
                assert learning_rate == self.knobs["learning_rate"]
                made = watched.steps.setdefault(self.step + 1, {})
                made[self.updates] = dict(self.knobs)
                watched.at.pop((self.step + 1, len(made)), lambda: None)()
            return optimise(self, name, learning_rate, loss)

        monkeypatch.setattr(session, "optimise", optimising)
        if spec.kind == "llm":
            sample_round = experience.sample_round

            def sampling(session, round, *others):
                sampled = sample_round(session, round, *others)
                self.sampled += len(sampled.texts)
                return sampled

            monkeypatch.setattr(experience, "sample_round", sampling)

    def on_record(self, run_id, record, seconds) -> None:
        self.completions[record.step], self.sampled = self.sampled, 0

    def back_to(self, step: int) -> None:
        """The run goes back: what it used beyond `step` is history of no run any more."""
        self.steps = {at: made for at, made in self.steps.items() if at <= step}
        self.completions, self.sampled = {at: n for at, n in self.completions.items() if at <= step}, 0

    def last(self, step: int) -> dict[str, Any]:
        """The knobs of the last update of a step; before the first those of the spec."""
        return self.steps[step][max(self.steps[step])] if step else dict(self.spec.knobs)

    @property
    def changes(self) -> list[Change]:
        """Where a knob was another one than at the update before."""
        rows = [(1, 0, dict(self.spec.knobs)), *((step, before, knobs) for step, made in sorted(self.steps.items())
                                                 for before, knobs in sorted(made.items()))]
        return sorted((step, before, key, old[key], new[key]) for (*_, old), (step, before, new) in pairwise(rows)
                      for key in new if new[key] != old[key])


def says_the_same(store, run_id: str, used: Watched, tmp_path: Path, overtaken: tuple[int, ...]) -> None:
    """All readers of the run's knobs against what it used."""
    row, changes = store.run(run_id), used.changes
    assert [*used.steps] == list(range(1, row.step + 1))

    feed = Feed(row.spec)  # the page
    feed.take(store.steps_after(run_id), store.events_after(run_id))
    for step in range(row.step + 1):
        assert feed.knobs(step) == used.last(step), step
    assert feed.knobs() == used.last(row.step)
    markers = payload({run_id: feed}, full=True, x="updates", smooth=0.0, ended=True)["markers"]
    assert sorted((mark["step"] + 1, mark["update"]) for mark in markers) == [change[:2] for change in changes]

    folder = export_run(store, run_id, tmp_path / "out")
    with (folder / "knobs.csv").open(newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["step", "update", "knob", "from", "to"]
    assert sorted(lines) == sorted([str(cell) for cell in change] for change in changes)
    with (folder / "metrics.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            if int(line["step"]) not in overtaken:
                rates = [knobs["learning_rate"] for knobs in used.steps[int(line["step"])].values()]
                assert float(line["learning_rate"]) == pytest.approx(sum(rates) / len(rates), rel=1e-12)
                if used.completions[int(line["step"])]:
                    knobs = used.last(int(line["step"]))
                    assert used.completions[int(line["step"])] == knobs["prompts_per_step"] * knobs["group_size"]

    for step in steps_to_fork(run_id):  # the forks, and what their sessions begin with
        state = json.loads((dict(checkpoint.steps(run_folder(run_id)))[step] / "state.json").read_text())
        assert fork_spec(store, run_id, step).knobs == state["knobs"] == used.last(step), step

    [trace] = load(store, [run_id])  # the comparison
    [again] = Reader(store).traces([row], ["learning_rate"])
    assert sorted((step + 1, knob, value) for step, knob, value in trace.changes) == sorted(
        (step, knob, to) for step, _, knob, _, to in changes)
    assert again.changes == trace.changes and again.breaks == trace.breaks == tuple(
        sorted({step - 1 for step, *_ in changes}))
    marks = marks_of(groups([trace])[0], 0, "step")
    assert sorted(mark["x"] for mark in marks) == [step - 1 for step, *_ in changes]

    if row.spec.kind == "llm":
        assert plan_of(store, run_id).spec.knobs == used.last(row.step)
    seen, used.steps = used.steps, {}
    verdict = replay.replay(packing.write(store, run_id, tmp_path / "run.zip"))
    assert verdict.matches and verdict.overtaken == overtaken
    assert used.steps == seen  # made again with the same knobs at every single update


def test_what_a_language_model_s_run_used(store, monkeypatch, tmp_path):
    """Live knobs between two steps and within a batch of three updates, and knobs that wait for the next batch."""
    monkeypatch.setitem(MODELS, "tiny", TINIER)
    spec = make(algorithm_key="grpo", task_key="sort", steps=8, knobs=LLM)
    used, run_id = Watched(monkeypatch, spec), store.create(spec)
    asker(store, run_id, ("beta", 0.1))()  # while it is queued: from the first step on
    used.at = {
        (2, 3): asker(store, run_id, ("learning_rate", 5e-4)),  # in the last update: for the next step
        (4, 1): asker(store, run_id, ("learning_rate", 2e-4), ("group_size", 2)),  # after one update; after the step
        (6, 2): asker(store, run_id, ("beta", 0.3), ("updates_per_batch", 2)),
        (7, 1): asker(store, run_id, ("beta", 0.4), ("beta", 0.5)),
        (7, 2): asker(store, run_id, ("clip_low", 0.1)),
    }
    assert drive(store, run_id, on_record=used.on_record) == "finished" and used.at == {}
    assert used.changes == [
        (1, 0, "beta", 0.04, 0.1), (3, 6, "learning_rate", 1e-3, 5e-4), (4, 10, "learning_rate", 5e-4, 2e-4),
        (5, 12, "group_size", 4, 2), (6, 17, "beta", 0.1, 0.3), (7, 18, "updates_per_batch", 3, 2),
        (7, 19, "beta", 0.3, 0.5), (8, 20, "clip_low", 0.2, 0.1)]
    says_the_same(store, run_id, used, tmp_path, ())


def dies_once(monkeypatch, kind: str, after: int) -> None:
    """Let the run of a kind end once, after that many steps, without a checkpoint."""
    session = resolve_name(KINDS[kind].session)
    run, gone = session.run, []

    def running(self) -> Iterator:
        for record in run(self):
            yield record
            if record and record.step == after and not gone:
                gone.append(record)
                raise ArithmeticError("for a test")

    monkeypatch.setattr(session, "run", running)


@pytest.mark.parametrize("kind, given", [
    pytest.param("llm", {"algorithm_key": "grpo", "task_key": "sort", "knobs": LLM}, marks=pytest.mark.long),
    ("cartpole", {"algorithm_key": "ppo", "task_key": "CartPole-v1", "knobs": POLE})], ids=["llm", "cartpole"])
def test_what_a_run_used_that_was_resumed_with_another_value(store, monkeypatch, tmp_path, kind, given):
    """It dies after step 6, is resumed from step 3 with another learning rate, and repeats the change of step 5."""
    spec = make(kind=kind, steps=8, **given)
    used, run_id = Watched(monkeypatch, spec), store.create(spec)
    other = {"llm": ("beta", 0.2), "cartpole": ("entropy_coef", 0.02)}[kind]
    moves = {3: asker(store, run_id, ("clip_low", 0.1)), 4: asker(store, run_id, other),
             5: asker(store, run_id, ("learning_rate", 5e-4))}

    def on_record(of, record, seconds):
        used.on_record(of, record, seconds)
        if of == run_id and record.step in moves:
            moves.pop(record.step)()

    dies_once(monkeypatch, kind, after=6)
    assert drive(store, run_id, on_record=on_record) == "failed" and store.run(run_id).step == 6
    for step, path in checkpoint.steps(run_folder(run_id)):
        if step > 3:
            shutil.rmtree(path)
    used.back_to(3)
    store.requeue(run_id, {"learning_rate": 2e-4})
    assert drive(store, run_id, on_record=on_record) == "finished"
    assert [(step, knob, to) for step, _, knob, _, to in used.changes] == [
        (4, "clip_low", 0.1), (4, "learning_rate", 2e-4), (5, *other)]
    says_the_same(store, run_id, used, tmp_path, (4, 5, 6))


def test_a_maze_that_waits_uses_a_knob_from_the_step_that_it_waits_for(store, monkeypatch):
    spec = make(kind="maze", algorithm_key="q_learning", task_key="corridors", steps=6,
                knobs={"pace": 100.0, "alpha": 0.5})
    run_id, used, step, clock = store.create(spec), {}, [1], [0.0]
    learn, between_updates, moves = TDLearner.learn, Steering.between_updates, {2: 0.4, 4: 0.3}

    def learning(self, made, knobs, rng):
        used.setdefault(step[0], set()).add(knobs["alpha"])
        return learn(self, made, knobs, rng)

    def listening(self, done):
        if done in moves:
            store.ask(run_id, "set", {"knob": "alpha", "value": moves.pop(done)})
        between_updates(self, done)

    slow = SimpleNamespace(perf_counter=lambda: clock[0], sleep=lambda left: clock.append(clock.pop() + left))
    monkeypatch.setattr(loops, "time", slow)  # on this clock only waiting takes time
    monkeypatch.setattr(TDLearner, "learn", learning)
    monkeypatch.setattr(Steering, "between_updates", listening)
    drive(store, run_id, on_record=lambda run, record, _: step.append(step.pop() + 1))
    assert used == {1: {0.5}, 2: {0.5}, 3: {0.4}, 4: {0.4}, 5: {0.3}, 6: {0.3}}
    assert [event.payload["between"] for event in store.events_after(run_id) if event.kind == "knob"] == [1, 1]
    assert {at: {knobs["alpha"]} for at, knobs in history(store, run_id).items()} == used


# ---------------------------------------------------------------- what is repeated after a resume, without a model


def resumed(store, run_id: str, at: int, **knobs) -> None:
    """Queue the run again from the checkpoint of step `at`, with `knobs` set there."""
    for step, path in checkpoint.steps(run_folder(run_id)):
        if step > at:
            shutil.rmtree(path)
    store.requeue(run_id, knobs)


def ended(store, run_id: str, moves: dict[int, Callable[[], None]]) -> tuple[str, dict[int, dict[str, Any]]]:
    """Drive it; its state, and the knobs that its session had at the end of each step."""
    sessions, used = [], {}

    def start(*given):
        sessions.append(fake.start(*given))
        return sessions[-1]

    def on_record(_run, record, _seconds):
        used[record.step] = dict(sessions[-1].knobs)
        if record.step in moves:
            moves.pop(record.step)()

    return drive(store, run_id, on_record=on_record, start=start), used


def history(store, run_id: str) -> dict[int, dict[str, Any]]:
    feed = Feed(store.run(run_id).spec)
    feed.take(store.steps_after(run_id), store.events_after(run_id))
    return {step.step: feed.knobs(step.step) for step in feed.steps}


def test_a_resume_with_the_value_of_before_takes_back_what_was_to_be_repeated(store, breaking):
    """Nothing changes at the checkpoint itself, but the change of step 6 is not made again."""
    run_id = store.create(fake.grpo(10))
    breaking(8, ArithmeticError())
    state, used = ended(store, run_id, {2: asker(store, run_id, ("group_size", 4)),
                                        5: asker(store, run_id, ("beta", 0.5))})
    assert state == "failed" and used[6]["beta"] == 0.5 and history(store, run_id)[7]["beta"] == 0.5
    breaking(99, ArithmeticError())
    resumed(store, run_id, 2, beta=0.04)
    state, again = ended(store, run_id, {})
    assert state == "finished" and {knobs["beta"] for knobs in again.values()} == {0.04}
    assert history(store, run_id) == {1: used[1], 2: used[2]} | again
    for step in steps_to_fork(run_id):
        assert fork_spec(store, run_id, step).knobs["beta"] == 0.04


def test_a_change_that_cannot_be_repeated_does_not_count(store, breaking):
    """P 9 went with 3 mini-batches; after a resume with 2 of them it does not, and P stays 8."""
    run_id = store.create(fake.grpo(10, prompts_per_step=8, mini_batches=4))
    breaking(8, ArithmeticError())
    moves = {2: asker(store, run_id, ("beta", 0.1)),
             5: asker(store, run_id, ("prompts_per_step", 9), ("mini_batches", 3))}
    state, used = ended(store, run_id, moves)
    assert state == "failed" and used[6]["prompts_per_step"] == 9
    breaking(99, ArithmeticError())
    resumed(store, run_id, 2, mini_batches=2)
    state, again = ended(store, run_id, {})
    assert state == "finished" and kinds(store, run_id).count("refused") == 1
    assert again[10]["prompts_per_step"] == 8 and again[10]["mini_batches"] == 2
    assert history(store, run_id) == {1: used[1], 2: used[2]} | again


def test_a_change_is_repeated_at_its_step_even_if_other_steps_have_fewer_updates_now(store, breaking):
    run_id = store.create(fake.grpo(12, updates_per_batch=4))
    breaking(9, ArithmeticError())
    state, used = ended(store, run_id, {2: asker(store, run_id, ("clip_low", 0.1)),
                                        6: asker(store, run_id, ("beta", 0.5))})
    assert state == "failed" and (used[6]["beta"], used[7]["beta"]) == (0.04, 0.5)
    breaking(99, ArithmeticError())
    resumed(store, run_id, 2, updates_per_batch=1)
    state, again = ended(store, run_id, {})
    assert state == "finished" and (again[6]["beta"], again[7]["beta"]) == (0.04, 0.5)
    assert history(store, run_id) == {1: used[1], 2: used[2]} | again
