"""Probes take a tenth of a run's time at most, whatever a step costs, and no metric depends on them."""

import time
from importlib import import_module
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labcore.llm.loops import online
from labcore.llm.probes import budget, view, watched
from labcore.llm.probes.budget import LINE, SAMPLES, Budget
from tests.every import now
from tests.llm.tools import records as all_records
from tests.llm.tools import session, weights

TENTH = 0.1
LARGE = ["grpo", "rloo", "ppo", "dpo", "sft"]


class Clock:
    """Time that passes only when somebody says so. Seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def passing(self, seconds, function):
        """`function`, which takes so long."""
        def taking(*given, **named):
            self.now += seconds
            return function(*given, **named)
        return taking


seconds = st.floats(0.01, 100.0)


@given(step_seconds=seconds, samples=st.floats(0.01, 0.8), line=st.floats(0.01, 1.2), prompts=st.integers(1, 64))
def test_looks_never_take_more_than_a_tenth_of_the_time(step_seconds, samples, line, prompts):
    """What a look costs is given in steps. A first look may cost as much as FIRST says."""
    clock = Clock()
    probes, made = Budget(clock), {SAMPLES: 0, LINE: 0}
    group = budget.GROUP_SHARE * step_seconds / prompts
    for step in range(1, 81):
        probes.begin()
        clock.now += step_seconds
        groups = probes.groups(prompts)
        assert groups or step > 1, "the first step shows completions"
        if groups:
            with probes.spend(SAMPLES):
                clock.now += min(groups, prompts) * group
        for kind, cost in ((SAMPLES, samples), (LINE, line)):
            if probes.affords(kind, step):
                with probes.spend(kind, step):
                    clock.now += cost * step_seconds / 2
                with probes.spend(kind, step):  # before the updates and after them
                    clock.now += cost * step_seconds / 2
                made[kind] += 1
        probes.end()
        assert probes.spent <= max(group, TENTH * probes.seconds) * (1 + 1e-9), "one group is not paid for yet"
    assert all(made.values()), "each kind gets its turn"


def test_time_between_steps_is_not_the_runs():
    clock = Clock()
    probes = Budget(clock)
    probes.begin()
    clock.now += 5
    probes.end()
    clock.now += 1000  # paused
    assert probes.seconds == 5


def test_a_run_that_waits_within_a_step_earns_nothing():
    probes = Budget()
    probes.begin()
    time.sleep(0.2)
    assert probes.seconds < 0.1


def test_looks_keep_their_distance_however_cheap_they_are():
    clock = Clock()
    probes, at = Budget(clock), []
    for step in range(1, 101):
        probes.begin()
        clock.now += 1
        if probes.affords(LINE, step):
            with probes.spend(LINE, step):
                clock.now += 1e-4
            at.append(step)
        probes.end()
    assert len(at) > 1 and all(after - before >= budget.EVERY[LINE] for before, after in pairwise(at))


@pytest.fixture
def large(monkeypatch):
    """large(algorithm): a session that counts as a large one, on a clock on which a step takes 10 seconds."""
    def made(algorithm, **given):
        clock = Clock()
        monkeypatch.setattr(view, "BY_SCHEDULE", 0)
        for module, name, cost in ((online, "collect", 10), (view, "line", 12), (view, "groups", 2.5),
                                   (watched, "before", 5)):
            monkeypatch.setattr(module, name, clock.passing(cost, getattr(module, name)))
        started = session(algorithm, **given)
        started.probes = Budget(clock)
        started.optimise = clock.passing(1, started.optimise)
        return started
    return made


def test_the_first_step_of_a_large_model_has_a_group_of_its_batch_and_no_line(large):
    started = large("rloo", steps=2, prompts_per_step=2, group_size=2, max_new_tokens=2)
    run = started.run()
    first = next(record for record in run if record is not None)
    assert first.line is None and len(first.samples["groups"]) == 1 and "watched" not in first.samples
    assert started.probes.spent <= (0.25 + 1e-9) * started.probes.seconds
    list(run)
    assert started.probes.seconds >= 2 * (10 + 1), "the time of both steps counts"


@pytest.mark.long
def test_the_time_of_a_large_model_s_steps_pays_for_watched_prompts_and_a_line(large):
    started = large("rloo", steps=60, prompts_per_step=2, group_size=2, max_new_tokens=2)
    monkeyed = [(record.samples, record.line, started.probes.spent / started.probes.seconds)
                for record in started.run() if record is not None]
    assert any(samples and "watched" in samples for samples, *_ in monkeyed)
    assert any(line for _, line, _ in monkeyed)
    assert all(share <= TENTH for *_, share in monkeyed[20:])


@pytest.mark.parametrize("algorithm", now(LARGE, "ppo"))
def test_metrics_do_not_depend_on_what_is_looked_at(algorithm, large, monkeypatch):
    def run(started):
        found = [(record.metrics, record.look and record.look()) for record in started.run() if record is not None]
        return [metrics for metrics, _ in found], weights(started.policy), started.generator.get_state().tolist()
    by_schedule = run(session(algorithm, steps=3))
    off = run(session(algorithm, steps=3, probes=False))
    by_time = run(large(algorithm, steps=3))
    for other in (off, by_time):
        assert other[0] == by_schedule[0] and other[2] == by_schedule[2]
        assert (other[1] == by_schedule[1]).all()


@pytest.mark.parametrize("algorithm", now(LARGE, "ppo"))
def test_without_probes_there_is_nothing_to_look_at(algorithm):
    found = all_records(session(algorithm, steps=5, probes=False), pictures=True)
    assert not any(record.samples or record.line or record.look for record in found)


def test_a_look_at_a_large_model_outside_its_schedule_makes_no_watched_prompts(large):
    last = [record for record in large("grpo", steps=3).run() if record is not None][-1]
    samples, line = last.look()
    assert samples["groups"] and "watched" not in samples and line is None


@pytest.mark.parametrize("algorithm", ["sft", "reward_model"])
def test_a_look_at_a_large_model_measures_nothing(algorithm, large, monkeypatch):
    """An evaluation of a real model takes minutes: the end of a run must not wait for one that no metric needs."""
    module = import_module(f"labcore.llm.loops.{algorithm}")
    first, second = [record for record in large(algorithm, steps=2, eval_every=50).run() if record is not None]
    monkeypatch.setattr(module, "evaluate", lambda *_: pytest.fail("nobody asked for a measurement"))
    assert first.samples and (second.look is None or second.look()[0]["examples"])


def test_a_large_model_is_not_sampled_for_answers_of_its_reference(large):
    for each in watched.of(large("grpo")):
        assert len(each.known) <= 1  # the right one
