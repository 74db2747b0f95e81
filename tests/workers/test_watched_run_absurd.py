"""Lines as no sane program writes them: each is said, and what came with it and after it is in the store, which can be
read."""

import json
import time

import pytest

from labcore.runs.knob_history import KnobHistory
from labcore.runs.store import thinned
from labcore.runs.store.store import Store
from labcore.runs.titles import title
from labcore.watch.converting import names
from labcore.workers import watched_run, watcher
from tests.watch.tools import begin, notes, numbers, read, rows, write

HUGE = "n" * 10**6
NESTED = b'{"kind":"numbers","step":1,"numbers":' + b"[" * 10**4 + b"]" * 10**4 + b"}"
GROUP = {"prompt": [{"content": 1}, 5], "completions": [
    {"text": None, "rewards": {"a": 1e308, "b": 1e308}, "tokens": ["a", 1, None], "logprobs": [1e308, None, "NaN"],
     "old_logprobs": [-1e308, 1, 2], "ref_logprobs": [1e308, 1, 2], "advantages": [1e308] * 3},
    {"text": 5, "rewards": [1], "tokens": "abc"}]}
LINES = {
    "tokens": [numbers(1, loss=1.0) | {"tokens": 1e300}], "tokens of the tool": [numbers(1, num_tokens=1e300)],
    "environment steps": [numbers(1, **{"time/total_timesteps": 1e300, "time/fps": 1})],
    "milliseconds": [numbers(1, 1.8e12, loss=1.0)], "seconds": [numbers(1, -1e300, loss=1.0)],
    "a step": [numbers(10**18, loss=1.0)], "the last step": [
        numbers(2**31 - 1), numbers(2**31 - 2, loss=1.0), {"kind": "config", "values": {"learning_rate": 1}}],
    "names": [numbers(1, **{HUGE: 1.0, f"rewards/{HUGE}/mean": 1.0, 'rewards/a"b/mean': 1.0, "rewards/a\0/mean": 1.0})],
    "numbers": [numbers(1, loss="NaN", kl=1e308, a=10**290, b=True, c=[1]), numbers(2, loss=-1e308, kl=-1e308)],
    "nested": [NESTED], "half a character": [b'{"kind":"event","step":1,"text":"\\ud800"}', b'{"kind":"x\xff"}'],
    "a process": [{**begin("t" * 1000, HUGE), "pid": [], "host": {"a": 1}}, {**begin(), "pid": 2**70, "host": HUGE}],
    "settings": [begin("<b>", "x\0y\n", **{"steps": 10**30, "": 1, HUGE: HUGE, "learning_rate": [1], "device": "x:9",
                                           "model": "../../x", "a": {"b": {"c": float("nan")}}})],
    "dropped": [{"kind": "dropped", "counts": {"numbers": "a", "b": [1], HUGE: 5}, "why": ["x"]}],
    "an end": [numbers(1, loss=1.0), {"kind": "end", "state": {"x": 1}, "message": [1]}],
    "kinds": [{"kind": HUGE}, {"kind": "\0"}, {"kind": ""}, {"kind": 5}, [1], 5],
    "rollouts": [{"kind": "rollouts", "step": 1, "of": 10**290, "groups": [GROUP, {"completions": "x"}, 5]},
                 {"kind": "rollouts", "step": 0, "groups": {"a": 1}}],
}


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(watcher, "SETTLED_SECONDS", -1.0)
    return Store()


@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
def test_whatever_a_line_says_the_store_can_be_read_and_later_lines_are(store, lines):
    write("r", *(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines))
    write("r", numbers(2**31 - 2 if lines is LINES["the last step"] else 7, after=0.5), writer="bb")
    assert read(store) and store.runs()
    run = store.runs(kind="watch")[-1]
    found = rows(store, run.id)
    assert found[max(found)]["own/after"] == 0.5
    assert title(run) and KnobHistory(run.spec, store.events_after(run.id)).at() is not None
    assert thinned.read(store, run) and store.thinned_after(run.id, 0, 4).rows
    keys = sorted({key for metrics in found.values() for key in metrics})
    columns = store.columns([run.id], keys)[run.id]
    assert [{key: columns[4 + at][row] for at, key in enumerate(keys) if columns[4 + at][row] is not None}
            for row in range(len(found))] == [*found.values()]
    assert max(map(len, keys)) <= names.LONGEST + len("own/")
    assert len(json.dumps(store.watched())) < 10_000  # it is written at every transaction


def test_a_counter_that_no_run_reaches_is_said_and_the_step_is_kept(store):
    write("r", numbers(1, 5.0, loss=1.0) | {"tokens": 7}, numbers(2, 1.8e12, loss=0.5) | {"tokens": 1e300})
    run, = read(store)
    assert [(step.tokens, step.seconds) for step in store.steps_after(run.id)] == [(7, 5.0), (7, 5.0)]
    seconds, tokens = sorted(notes(store, run.id))
    assert "Seconds of 1.8e+12 are above 2.53402e+11" in seconds and "Tokens of 1e+300 are above 9.0072e+15" in tokens


def test_a_line_without_seconds_stands_still_after_a_restart_whose_clock_began_at_0(store):
    write("r", numbers(1, 100.0, loss=1.0))
    write("r", numbers(2, 1.0, loss=1.0), numbers(3, loss=1.0), numbers(4, 2.0, loss=1.0), writer="bb")
    run, = read(store)
    assert [step.seconds for step in store.steps_after(run.id)] == [100.0, 101.0, 101.0, 102.0]


def test_a_line_at_which_the_lab_fails_is_said_and_no_later_one_waits_for_it(store, monkeypatch, capsys):
    monkeypatch.setattr(watched_run, "samples_of", lambda said, step: said["groups"]["x"])
    write("r", numbers(1, loss=1.0), {"kind": "rollouts", "step": 1, "groups": []}, numbers(2, loss=0.5))
    run, = read(store)
    assert [*rows(store, run.id)] == [1, 2]
    note, = notes(store, run.id)
    assert "line of rollouts cannot be used (TypeError)" in note
    assert "list indices" in capsys.readouterr().err


def test_names_of_many_rewards_take_no_longer_than_as_many_others(store):
    """The time is linear in them: quadratic, 20,000 take a minute."""
    begun = time.monotonic()
    found = names.numbers_of({f"rewards/{place}/mean": 1.0 for place in range(20_000)})
    assert len(found.metrics) == 20_000 and time.monotonic() - begun < 8
