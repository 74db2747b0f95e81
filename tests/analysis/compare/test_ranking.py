"""The order of the settings of a large sweep, what each knob explains, and the values of runs that both rest on."""

from dataclasses import replace

import pytest

from labcore.analysis.compare.ranking import Ends, axes_of, effects, of_seeds, ranking
from labcore.analysis.compare.statistics import LAST
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.rows import RunRow
from labcore.runs.sweep import Sweep, grid
from tests.queries import counted
from tests.runs import fake


def rows_of(axes, seeds=(0, 1), state="finished", step=30, specs=None) -> list[RunRow]:
    found = specs or grid(fake.grpo(), axes, seeds)
    return [RunRow(f"run{place}", spec, state, "", created=1.0, started=None, ended=None, pid=None, host=None,
                   heartbeat=None, step=step, seconds=1.0, base=None) for place, spec in enumerate(found)]


def axes(rows):
    return axes_of(rows, Sweep("sweep", tuple(rows)).axes)


def values(rows, number) -> dict[str, float]:
    return {row.id: number(row.spec.knobs, row.spec.seed) for row in rows}


def test_the_best_mean_of_finished_runs_comes_first():
    rows = rows_of({"beta": [0.2, 0.0, 0.1]})
    order = ranking(rows, axes(rows), values(rows, lambda knobs, seed: knobs["beta"] + seed), "reward")
    assert [(setting.values, setting.mean.mean, setting.mean.count, setting.whole) for setting in order] == [
        ((0.2,), pytest.approx(0.7), 2, True), ((0.1,), pytest.approx(0.6), 2, True),
        ((0.0,), pytest.approx(0.5), 2, True)]


def test_where_less_is_better_the_lowest_comes_first():
    rows = rows_of({}, specs=grid(make(kind="maze", algorithm_key="q_learning", task_key="cliff"),
                                  {"alpha": [0.1, 0.5, 0.9]}, [0]))
    order = ranking(rows, axes(rows), values(rows, lambda knobs, seed: knobs["alpha"]), "value_error")
    assert [setting.values for setting in order] == [(0.1,), (0.5,), (0.9,)]


def test_what_was_stopped_is_never_compared_at_its_last_step_with_what_finished():
    rows = rows_of({"beta": [0.0, 0.1, 0.2, 0.3]})
    stopped = {"run1": 12, "run5": 4, "run2": 4, "run6": 4, "run4": 4}  # both of β 0.1 and 0.2, one of 0.0
    rows = [replace(row, state="stopped", step=stopped[row.id], stops_early=True)
            if row.id in stopped else row for row in rows]
    order = ranking(rows, axes(rows), {row.id: 9.0 if row.id in stopped else 1.0 for row in rows}, "reward")
    assert [(setting.values, setting.whole, setting.mean and setting.mean.mean) for setting in order] == [
        ((0.3,), True, 1.0), ((0.0,), False, 1.0), ((0.1,), False, None), ((0.2,), False, None)]


def test_a_knob_explains_the_share_of_the_variance_that_lies_between_its_values():
    rows = rows_of({"beta": [0.0, 0.1], "group_size": [4, 8]}, seeds=[0, 1])
    # β adds 0 or 2, the seed 0 or 1, the group nothing: SST = 10, of β 8, within the 4 settings 2 of 4 degrees of
    # freedom. So MSE = 0.5, ω² of β (8 - 0.5) / (10 + 0.5), of the group (0 - 0.5) / 10.5: none.
    found = values(rows, lambda knobs, seed: 20 * knobs["beta"] + seed)
    beta, group = effects(rows, axes(rows), found)
    assert (beta.axis.title, beta.share, beta.means) == ("KL coefficient β", pytest.approx(7.5 / 10.5),
                                                         {0.0: 0.5, 0.1: 2.5})
    assert (group.axis.title, group.share) == ("Group size G", 0)
    assert of_seeds(rows, axes(rows), found) == pytest.approx((2 / 4) / (10 / 7))
    alone = [row for row in rows if not row.spec.seed]
    assert of_seeds(alone, axes(alone), found) is None, "one seed says nothing of seeds"
    one = [row for row in alone if row.spec.knobs["group_size"] == 4]
    assert [effect.share for effect in effects(one, axes(one), found)] == [None], "a knob and nothing beside it"
    assert effects(rows, axes(rows), {})[0].share is None and effects(rows, axes(rows), dict.fromkeys(found, 1.0))[
        0].share == 0


def test_several_algorithms_are_an_axis_and_a_knob_that_one_of_them_lacks_has_no_value_there():
    ppo, grpo = (make(algorithm_key=key, task_key="sort", steps=30) for key in ("ppo", "grpo"))
    rows = rows_of({}, specs=[*grid(ppo, {"gae_lambda": [0.9, 1.0]}, [0]), *grid(grpo, {}, [0, 1])])
    first, second = axes(rows)
    assert (first.title, first.values) == ("Algorithm", ("PPO", "GRPO")) and second.values[-1] is None
    assert len(ranking(rows, [first, second], values(rows, lambda *_: 1.0), "reward")) == 3


def run_with(store, logged) -> RunRow:
    """A run whose rows have what `logged` says of each step."""
    run_id = store.create(fake.grpo(500), mine=True)
    store.set_state(run_id, "running")
    for step, metrics in enumerate(logged, start=1):
        store.append(run_id, Record(step, step, metrics), float(step))
    return store.run(run_id)


def test_a_value_is_the_mean_of_the_last_rows_as_everywhere(store):
    row = run_with(store, [{"reward": float(step)} for step in range(1, 31)])
    ends = Ends(store)
    assert ends.values([row], "reward") == {row.id: 28.0} and LAST == 5
    assert ends.values([row], "reward", at=10) == {row.id: 8.0}
    assert ends.values([row], "reward", at=31) == {} and ends.values([row], "kl") == {}


def test_a_metric_that_is_logged_now_and_then_is_looked_for_further_back(store):
    rows = [run_with(store, [{"reward": 0.0, **({"exact_match": float(step)} if step % every == 0 else {})}
                             for step in range(1, 131)]) for every in (1, 10, 50)]
    found = Ends(store).values(rows, "exact_match")
    assert [found[row.id] for row in rows] == [128.0, 130.0, 100.0]


def test_runs_are_read_once_and_again_only_where_they_went_on(store):
    rows = [run_with(store, [{"reward": float(step)} for step in range(1, 8)]) for _ in range(3)]
    ends = Ends(store)
    with counted() as asked:
        ends.values(rows, "reward")
    assert len(asked) <= 3
    with counted() as asked:
        ends.values(rows, "reward")
    assert not asked
    store.append(rows[1].id, Record(8, 8, {"reward": 13.0}), 8.0)
    now = [store.run(row.id) for row in rows]
    assert Ends(store).values(now, "reward") == ends.values(now, "reward")
    assert ends.values(now, "reward")[rows[1].id] == pytest.approx((4 + 5 + 6 + 7 + 13) / 5)
