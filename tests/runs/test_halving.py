"""The rule of early stopping, its words, and that Optuna says the same when it is asked again."""

import random

import pytest

from labcore.analysis.compare.statistics import LAST
from labcore.errors import LabError
from labcore.runs import halving
from labcore.runs.halving import FACTORS, Halving, check, metrics_of, usual, value_at
from tests.runs import fake

optuna = pytest.mark.skipif(halving.lacks_optuna(), reason="Optuna is not installed: pip install -r "
                            "requirements-sweeps.txt")
HOW = Halving("reward", 4, 3)


def test_the_rungs_are_powers_below_the_end():
    assert HOW.rungs(37) == [4, 12, 36] and HOW.rungs(36) == [4, 12] and HOW.rungs(4) == []
    assert usual(fake.grpo(30)) == Halving("reward", 4, 3) and HOW.rungs(30) == [4, 12]
    assert [len(usual(fake.grpo(steps)).rungs(steps)) for steps in (9, 27, 200, 1000)] == [2] * 4
    assert Halving.from_json(HOW.to_json()) == HOW


def test_a_run_is_judged_as_it_is_at_its_end():
    assert halving.LAST == LAST
    assert value_at(7, range(1, 11), [float(step) for step in range(1, 11)]) == 5.0
    assert value_at(3, [1, 2, 3, 4], [None, None, None, 1.0]) is None


@pytest.mark.parametrize("of, kept, over, said", [
    (27, False, False, "Stopped early at step 64: its reward 0.21 is not among the best third of 27 runs at this "
     "step."),
    (27, True, False, "Continues at step 64: its reward 0.21 is among the best third of 27 runs at this step."),
    (2, False, False, "Stopped early at step 64: its reward 0.21 is not the best of 2 runs at this step."),
    (1, True, False, "Continues at step 64: its reward 0.21 is the first at this step."),
    (1000, False, True, "Finished before it was judged at step 64: its reward 0.21 is not among the best third of "
     "1,000 runs at this step."),
    (3, True, True, "Finished before it was judged at step 64: its reward 0.21 is among the best third of 3 runs at "
     "this step."),
])
def test_a_verdict_is_a_sentence(of, kept, over, said):
    assert HOW.verdict(64, 0.21, of, kept, over) == said
    assert said.startswith("Stopped early") == (not kept and not over)


def test_every_share_has_a_word():
    for factor in range(FACTORS[0], FACTORS[1] + 1):
        assert "best " in Halving("reward", 1, factor).words()


@pytest.mark.parametrize("how, said", [
    (Halving("reward", 4, 1), "reduction factor of early stopping is 1: give a whole number from 2 to 10"),
    (Halving("reward", 0, 3), "begins after 0 steps, and the runs have 30"),
    (Halving("reward", 30, 3), "begins after 30 steps, and the runs have 30"),
    (Halving("entropy", 4, 3), "cannot use 'entropy' of GRPO: choose reward"),
    (Halving("episode_return", 4, 3), "cannot use 'episode_return' of GRPO: choose reward"),
])
def test_what_cannot_be_is_told(how, said):
    with pytest.raises(LabError, match=said):
        check(how, [fake.grpo(30)])


def test_without_optuna_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(halving, "find_spec", lambda name: None)
    with pytest.raises(LabError, match=r"needs Optuna, which is not installed: run pip install -r requirements-sweeps"):
        check(HOW, [fake.grpo(30)])


def test_only_metrics_that_say_what_is_better_are_offered():
    assert metrics_of(fake.grpo())[0] == "reward" and "entropy" not in metrics_of(fake.grpo())


@optuna
def test_the_best_third_goes_on_and_nobody_waits():
    check(HOW, [fake.grpo(30)])
    rungs = halving.Rungs(HOW)
    assert rungs.came("a", 4, 0.5) == (True, 1), "the first has nobody beside it"
    assert rungs.came("b", 4, 0.4) == (False, 2) and rungs.came("c", 4, 0.6) == (True, 3)
    assert [rungs.came(name, 4, value)[0] for name, value in (("d", 0.55), ("e", 0.1), ("f", 0.58))] == [
        False, False, True], "the best two of six"
    assert rungs.came("c", 12, 0.7) == (True, 1) and rungs.came("a", 12, 0.6) == (False, 2)


@optuna
def test_where_less_is_better_the_lowest_goes_on():
    rungs = halving.Rungs(Halving("value_error", 4, 2))
    assert [rungs.came(name, 4, value)[0] for name, value in (("a", 0.5), ("b", 0.6), ("c", 0.4))] == [
        True, False, True]


@optuna
def test_asked_again_in_the_same_order_it_says_the_same():
    numbers = random.Random(0)
    came = [(f"run{place}", 4, numbers.random()) for place in range(100)]
    first, second = halving.Rungs(HOW), halving.Rungs(HOW)
    said = [first.came(*each) for each in came]
    assert said == [second.came(*each) for each in came] and 20 < sum(kept for kept, _ in said) < 50
