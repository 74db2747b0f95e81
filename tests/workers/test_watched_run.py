"""Lines of a program become rows, events and samples: steps that repeat, numbers that are none, two programs at once.
"""

import json
import random
from itertools import pairwise

import pytest

from labcore.errors import LabError
from labcore.exports.folder import export_run
from labcore.runs.files import step_files
from labcore.runs.files.paths import run_folder
from labcore.runs.fork import fork_spec, lineage
from labcore.runs.knob_history import KnobHistory
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.store import Store
from labcore.runs.titles import title
from labcore.watch import Watch
from labcore.watch.converting import spool
from labcore.workers import alerts, watched_run, watcher
from labcore.workers.watcher import Watcher
from tests.watch.tools import begin, notes, numbers, read, rows, write


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(watcher, "SETTLED_SECONDS", -1.0)
    return Store()


def test_a_watched_run_is_stored_under_the_labs_names(store):
    write("r", begin("TRL", "qwen", trainer="GRPOTrainer", learning_rate=1e-6, num_generations=8, max_steps=40),
          numbers(1, 2.5, **{"train/loss": 0.5, "rewards/accuracy_reward/mean": 0.25, "my/own": 3, "num_tokens": 70}),
          {"kind": "end", "state": "finished"})
    run, = read(store)
    assert (run.state, run.spec.tool, run.spec.algorithm, run.spec.steps) == ("finished", "TRL", "grpo", 40)
    assert title(run) == "qwen #1" and run.spec.knobs["group_size"] == 8
    step, = store.steps_after(run.id)
    assert (step.tokens, step.seconds) == (70, 2.5)
    assert step.metrics == {"loss": 0.5, "exact_match": 0.25, "own/my/own": 3.0, "num_tokens": 70.0}


def test_several_calls_for_one_step_make_one_row(store):
    write("r", numbers(1, loss=1.0), numbers(1, reward=2.0), numbers(2, loss=0.5))
    run, = read(store)
    write("r", numbers(2, kl=0.1), numbers(2, loss=0.5), numbers(1, entropy=0.3))  # late, twice, and later still
    assert len(read(store)) == 1
    assert rows(store, run.id) == {1: {"loss": 1.0, "reward": 2.0, "entropy": 0.3}, 2: {"loss": 0.5, "kl": 0.1}}


def test_a_repeated_step_starts_a_fork_and_changes_no_row(store):
    write("r", *(numbers(step, loss=float(step)) for step in (1, 2, 3, 4)))
    first, = read(store)
    write("r", *(numbers(step, loss=-float(step)) for step in (3, 4, 5)), writer="bb")
    parent, fork = read(store)
    assert rows(store, parent.id) == {step: {"loss": float(step)} for step in (1, 2, 3, 4)}
    assert fork.spec.parent == (first.id, 2) and fork.state == "running" and parent.state == "stopped"
    assert rows(store, fork.id) == {step: {"loss": -float(step)} for step in (3, 4, 5)}
    assert fork.id in notes(store, parent.id)[0] and [each.depth for each in lineage(store, fork.id)] == [0, 1]


def test_a_step_before_the_start_of_a_fork_forks_its_parent(store):
    write("r", *(numbers(step, loss=1.0) for step in (1, 2, 3, 4, 5, 6)), *(numbers(step, loss=2.0) for step in (5, 6)),
          *(numbers(step, loss=3.0) for step in (2, 3)))
    first, _, last = read(store)
    assert last.spec.parent == (first.id, 1)


def test_whatever_the_order_of_steps_no_number_is_lost_or_changed(store):
    """Every (step, value) that was sent is in exactly the run that its program was in, or said to be left out."""
    luck = random.Random(3)
    sent: list[tuple[int, float]] = []
    step = 1
    for place in range(120):
        step = luck.choice([step + 1, step + 1, step + 1, step + 2, max(1, step - luck.randrange(4))])
        sent.append((step, float(place)))
    write("r", *(numbers(step, loss=value) for step, value in sent))
    there = [(step, found["loss"]) for run in read(store) for step, found in rows(store, run.id).items()]
    back = sum(after[0] <= before[0] for before, after in pairwise(sent))
    assert back > watched_run.MOST_FORKS and any("20 times" in note for run in store.runs() for note in notes(
        store, run.id))
    until = [place for place, (a, b) in enumerate(pairwise(sent), 1) if b[0] <= a[0]][watched_run.MOST_FORKS]
    assert {*sent[:until]} <= {*there} <= {*sent} and len(there) == len({*there})


def test_two_processes_on_one_run_get_a_run_each_which_is_reported_once(store):
    for step in range(1, 6):
        write("r", numbers(step, loss=1.0))
        read(store)
        write("r", numbers(step, loss=2.0), writer="bb")
        read(store)
    one, other = store.runs()[::-1]
    assert [each["loss"] for each in rows(store, one.id).values()] == [1.0] * 5
    assert [each["loss"] for each in rows(store, other.id).values()] == [2.0] * 5
    said = [note for run in (one, other) for note in notes(store, run.id)]
    assert sum("Two processes" in note for note in said) == 1


BAD = {
    "NaN": ([numbers(1, loss="NaN", reward=1.0), numbers(2, loss="Infinity", reward=1.0)], "metric loss is NaN"),
    "no number": ([numbers(1, loss=[1], reward=1.0)], "metric loss is not a number"),
    "no JSON": ([numbers(1, reward=1.0), b'{"kind": "numb', numbers(2, reward=1.0)], "is not JSON"),
    "no object": ([numbers(1, reward=1.0), b"[1]"], "not an object with a kind"),
    "no step": ([numbers(1, reward=1.0), numbers("x", reward=1.0), numbers(-1, reward=1.0), numbers(1.5, reward=1.0)],
                "not a whole number from 0"),
    "a step beyond all": ([numbers(1, reward=1.0), numbers(2**40, reward=1.0)], "not a whole number from 0"),
    "unknown": ([numbers(1, reward=1.0), {"kind": "pickle"}], "'pickle'"),
    "no groups": ([numbers(1, reward=1.0), {"kind": "rollouts", "step": 1, "groups": "x"}], "without completions"),
    "dropped": ([numbers(1, reward=1.0), {"kind": "dropped", "counts": {"rollouts": 3}, "why": "slow"}], "3 rollouts"),
    "half a character": ([numbers(1, reward=1.0), numbers(2, **{"\ud800": 1.0})], "half a character"),
    "deep": ([numbers(1, reward=1.0), b"[" * 5000], "is not JSON"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_invalid_line_is_reported_once_and_affects_no_other_line(store, case):
    lines, words = BAD[case]
    write("r", *lines, *lines[1:], numbers(9, reward=2.0))
    run, = read(store)
    said = [note for note in notes(store, run.id) if words in note]
    assert len(said) == (2 if case == "dropped" else 1), notes(store, run.id)
    assert rows(store, run.id)[1]["reward"] == 1.0 and rows(store, run.id)[9] == {"reward": 2.0}


def test_names_of_any_letters_are_metrics_of_their_own(store):
    odd = {'a"b\\c': 1.0, "loss µ": 2.0, "x" * 500: 3.0, " ": 4.0, "reward/": 5.0}
    write("r", numbers(1, **odd))
    run, = read(store)
    assert len(rows(store, run.id)[1]) == len(odd) and store.logged(run.id) == rows(store, run.id)[1].keys()
    assert all(key.startswith("own/") for key in store.logged(run.id))
    column, = store.columns([run.id], sorted(store.logged(run.id)))[run.id][4]
    assert column in odd.values()


def test_the_number_of_metrics_of_a_run_is_limited(store, monkeypatch):
    monkeypatch.setattr(watched_run, "MOST_NAMES", 10)
    write("r", numbers(1, **{f"m{place}": 1.0 for place in range(12)}), numbers(2, m0=2.0, m11=3.0))
    run, = read(store)
    assert len(store.logged(run.id)) == 10 and rows(store, run.id)[2] == {"own/m0": 2.0}
    assert len([note for note in notes(store, run.id) if "more than 10 metrics" in note]) == 1


def test_clocks_and_counters_never_decrease(store):
    write("r", *(numbers(step, seconds, loss=1.0, num_tokens=tokens) for step, seconds, tokens in (
        (1, 5.0, 100), (2, -3.0, 50), (3, "NaN", 200), (4, 4.0, "x"), (5, 9.0, 300))))
    run, = read(store)
    assert [step.seconds for step in store.steps_after(run.id)] == [5.0, 5.0, 5.0, 5.0, 9.0]
    assert [step.tokens for step in store.steps_after(run.id)] == [100, 100, 200, 200, 300]


def test_the_seconds_of_a_restarted_trainer_continue(store):
    write("r", *(numbers(step, 10.0 * step, loss=1.0) for step in (1, 2)))
    write("r", *(numbers(step, float(step), loss=1.0) for step in (3, 4)), writer="bb")
    write("r", *(numbers(step, 10.0 * step, loss=1.0) for step in (5, 6)), writer="cc")  # it has gone on by itself
    run, = read(store)
    assert [step.seconds for step in store.steps_after(run.id)] == [10.0, 20.0, 23.0, 24.0, 50.0, 60.0]


def test_step_0_is_drawn_with_the_first_step(store):
    write("r", numbers(0, eval=0.1, loss=9.0), numbers(1, loss=1.0), numbers(2, loss=0.5))
    run, = read(store)
    assert rows(store, run.id) == {1: {"own/eval": 0.1, "loss": 1.0}, 2: {"loss": 0.5}}
    assert any("step 0" in note for note in notes(store, run.id))


def test_settings_that_change_are_changes_of_knobs(store):
    write("r", begin(lr=1e-3, deep={"a": 1}), numbers(1, loss=1.0), {"kind": "config", "values": {"lr": 1e-4}},
          numbers(2, loss=1.0), begin(lr=1e-4, deep={"a": 2}), numbers(3, loss=1.0))
    run, = read(store)
    history = KnobHistory(run.spec, store.events_after(run.id))
    assert [(each.knob, each.before, each.value, each.step) for each in history.changes] == [
        ("learning_rate", 1e-3, 1e-4, 2), ("deep.a", 1, 2, 3)]
    assert history.changes[0].text == "η 0.001 → 0.0001"


def test_completions_become_samples_and_the_doctor_judges_them(store):
    line = {"kind": "rollouts", "step": 3, "of": 4, "groups": [{"prompt": "2+2", "completions": [
        {"text": "4", "rewards": {"right": 1, "form": 0.5}, "advantages": 1.0, "tokens": ["4"], "logprobs": [-0.5],
         "old_logprobs": [-0.5], "ref_logprobs": ["NaN"]}, {"text": "5", "rewards": {"right": 0, "form": 0.5}}]}]}
    write("r", *(numbers(step, reward=0.0, frac_reward_zero_std=1.0, reward_std=0.0) for step in range(1, 60)), line)
    run, = read(store)
    samples = json.loads((run_folder(run.id) / "samples" / "step-000003.json").read_text())
    assert step_files.prompts_of(step_files.path_of(run.id, "samples", 3)) == [
        step_files.prompt_hash({"prompt": "2+2"})]
    one, two = samples["groups"][0]["completions"]
    assert (one["reward"], one["parts"], one["ratio"], one["kl"]) == (1.5, {"right": 1.0, "form": 0.5}, [1.0], [None])
    assert two["reward"] == 0.5 and "ratio" not in two and samples["batch_groups"] == 2
    assert any(event.kind == "doctor" for event in store.events_after(run.id))


def test_a_finding_is_an_alert_and_can_ask_the_trainer_to_stop(store, monkeypatch, tmp_path):
    monkeypatch.setenv("RL_LAB_ALERTS", f"note file {tmp_path / 'alerts'}; note stop")
    lines = [numbers(step, reward=0.0, frac_reward_zero_std=1.0, reward_std=0.0) for step in range(1, 60)]
    with Watch("r", run_id="r") as client:
        assert client.asked() == {}
        write("r", *lines)
        run, *_ = read(store)
        alerts.wait()
        read(store)  # another watcher, and nothing is sent again
        alerts.wait()
        assert client.asked()["stop"] and "The doctor of the lab" in client.asked()["why"]
    sent = [json.loads(line) for line in (tmp_path / "alerts").read_text().splitlines()]
    assert {each["run"] for each in sent} == {run.id} and {each["watched"] for each in sent} == {"r"}
    assert len(sent) == len({each["rule"] for each in sent}) > 0


def test_lines_are_stored_once_even_if_a_process_is_killed(store, monkeypatch):
    """The store fails at every possible place of a transaction; nothing is lost, and nothing is there twice."""
    write("r", begin(), *(numbers(step, loss=1.0) for step in (1, 2)), {"kind": "event", "text": "a"},
          numbers(3, loss=1.0))
    calls = {"left": 0}
    real = watched_run.WatchedRun._line

    def failing(self, line):
        if not calls["left"]:
            raise LabError("The disk is full.")
        calls["left"] -= 1
        real(self, line)

    monkeypatch.setattr(watched_run.WatchedRun, "_line", failing)
    for left in (0, 1, 3, 4, 100):
        calls["left"] = left
        runs = read(store)
        assert len(runs) == (left == 100)
    run, = read(store)
    assert [*rows(store, run.id)] == [1, 2, 3] and notes(store, run.id) == ["a"]


def test_a_watched_run_cannot_be_changed_forked_or_resumed(store):
    write("r", begin("TRL"), numbers(1, loss=1.0))
    run, = read(store)
    for attempt in (lambda: store.ask(run.id, "pause"), lambda: store.ask(run.id, "set", {"knob": "beta", "value": 1}),
                    lambda: fork_spec(store, run.id), lambda: store.requeue(run.id)):
        with pytest.raises(LabError, match="use TRL instead"):
            attempt()


def test_a_watched_run_is_exported_without_weights(store, tmp_path):
    write("r", begin("TRL", lr=0.1), numbers(1, loss=1.0, **{"my/own": 2.0}), {"kind": "config", "values": {"lr": 0.2}},
          numbers(2, loss=0.5), {"kind": "end"})
    run, = read(store)
    folder = export_run(store, run.id, tmp_path / "out", tensorboard=True)
    assert (folder / "metrics.csv").read_text().splitlines()[0] == "step,tokens,seconds,loss,own/my/own"
    assert "learning_rate" in (folder / "knobs.csv").read_text() and not (folder / "checkpoint").exists()
    assert RunSpec.from_json((folder / "spec.json").read_text()) == run.spec


def test_a_run_in_the_trash_waits_and_the_client_of_a_deleted_run_is_told(store):
    write("r", numbers(1, loss=1.0), {"kind": "end"})
    run, = read(store)
    store.trash([run.id])
    path = write("r", numbers(2, loss=1.0))
    assert read(store) == [] and path.exists()
    store.restore([run.id])
    assert [*rows(store, read(store)[0].id)] == [1, 2]
    Watcher(store).close()
    store.lost(store.run(run.id).pid, store.run(run.id).host, "x")
    store.trash([run.id])
    store.delete(run.id)
    write("r", numbers(3, loss=1.0))
    assert read(store) == [] and spool.files(spool.folder_of("r")) == []
    assert spool.gone(spool.folder_of("r")) == {"aa"}
    write("r", begin(name="again"), numbers(1, loss=2.0), writer="bb")
    again, = read(store)
    assert again.spec.task == "again" and rows(store, again.id) == {1: {"loss": 2.0}}


ODD = (None, True, -1, 0, 1, 2, 3.5, 10**30, "", "NaN", "x", [], [1, "a", None], {}, {"a": 1}, [[1.0, 2.0]], [{}],
       {"config": {"lr": [1]}}, [{"prompt": 1, "completions": [{"text": None, "rewards": {"a": "b"}}, 3]}])
FIELDS = ("step", "numbers", "groups", "values", "config", "name", "tool", "pid", "host", "state", "message", "text",
          "counts", "why", "tokens", "seconds", "of")


def test_no_line_of_any_content_stops_the_reader(store):
    luck = random.Random(7)
    for place in range(400):
        kind = luck.choice(("run", "numbers", "rollouts", "config", "event", "dropped", "end", "x", 3))
        write("r", {"kind": kind, **{key: luck.choice(ODD) for key in luck.sample(FIELDS, luck.randrange(8))}},
              writer=luck.choice(("aa", "bb")))
        if place % 100 == 99:
            read(store)
    write("r", numbers(7_000, loss=1.0), writer="cc")
    read(store)
    assert any(7_000 in rows(store, run.id) for run in store.runs())
