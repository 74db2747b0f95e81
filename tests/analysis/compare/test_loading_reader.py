"""The reader that keeps what it read: the same traces as a fresh look at the store, from fewer rows."""

import numpy as np
import pytest

from labcore.analysis.compare.loading import Reader, load
from labcore.errors import LabError
from labcore.runs.imports import imported
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from tests.analysis.compare import tools
from tests.queries import counted


class Counting(Store):
    """A store that counts the rows it was asked for."""

    asked = 0

    def columns(self, run_ids, keys, after=0):
        found = super().columns(run_ids, keys, after)
        self.asked += sum(len(columns[0]) for columns in found.values())
        return found


def same(one, other):
    assert (one.run, one.state, one.breaks, one.changes, one.origin) == (
        other.run, other.state, other.breaks, other.changes, other.origin)
    for mine, theirs in ((one.axes, other.axes), (one.metrics, other.metrics)):
        assert set(mine) <= set(theirs)
        for key, column in mine.items():
            np.testing.assert_array_equal(column, theirs[key])


@pytest.mark.parametrize("metrics", [None, ["reward"]])
def test_the_parents_of_all_forks_are_named_by_one_query(metrics, monkeypatch):
    store, asked, read = Store(), [], Store.runs_named
    above, gone = (tools.stored(store, [1, 2]) for _ in range(2))
    forks = [tools.stored(store, [3], seed=seed, parent=(parent, 1)) for seed in range(3) for parent in (above, gone)]
    store.delete(gone)
    monkeypatch.setattr(Store, "runs_named", lambda *given, **named: (asked.append(1), read(*given, **named))[1])
    assert [trace.parent for trace in load(store, [above, *forks], metrics)] == ["", *["GRPO sort #1", gone] * 3]
    assert len(asked) == 1


def test_a_growing_run_is_what_the_store_says_and_read_once():
    store = Counting()
    run = tools.stored(store, [0.1, 0.2, 0.3], state="running", kl=[1.0, 2.0, 3.0])
    reader = Reader(store)
    same(reader.traces([store.run(run)], ["reward"])[0], load(store, [run])[0])
    assert store.asked == 3
    same(reader.traces([store.run(run)], ["reward"])[0], load(store, [run])[0])
    assert store.asked == 3
    store.append(run, Record(4, 400, {"reward": 0.4, "updates": 4.0}), 4.0)
    store.log(run, "knob", {"knob": "beta", "to": 0.1, "update": 3, "between": 1}, 4)
    got = reader.traces([store.run(run)], ["reward"])[0]
    same(got, load(store, [run])[0])
    assert store.asked == 4 and got.changes == ((3, "beta", 0.1),) and got.metrics["reward"].tolist()[-1] == 0.4


def test_a_metric_asked_for_later_has_as_many_rows_as_the_others(store):
    run = tools.stored(store, [0.1, 0.2, 0.3], state="running", kl=[1.0, 2.0, 3.0])
    reader, row = Reader(store), store.run(run)
    reader.traces([row], ["reward"])
    store.append(run, Record(4, 400, {"reward": 0.4, "kl": 4.0, "updates": 4.0}), 4.0)
    late = reader.traces([row], ["kl"])[0]  # the row as it was read before the fourth step
    assert [late.metrics[key].size for key in ("reward", "kl")] == [3, 3] and late.axes["step"].size == 3
    now = reader.traces([store.run(run)], ["reward", "kl"])[0]
    assert now.metrics["kl"].tolist() == [1, 2, 3, 4] and now.metrics["reward"].tolist() == [0.1, 0.2, 0.3, 0.4]


def test_a_run_without_rows_and_one_without_the_metric(store):
    empty, plain = tools.stored(store, [], state="running"), tools.stored(store, [0.5])
    traces = Reader(store).traces([store.run(empty), store.run(plain)], ["reward", "entropy"])
    assert traces[0].metrics == {} and traces[0].axes["step"].size == 0
    assert set(traces[1].metrics) == {"reward", "updates"}


def test_an_imported_run_is_read_whole(store):
    kept, = imported.keep(store, "log.csv", b"step,reward\n1,0.5\n2,0.75\n", "TRL")
    trace, = Reader(Store()).traces([kept.id], [])
    assert trace.imported and trace.metrics["reward"].tolist() == [0.5, 0.75]
    with pytest.raises(LabError, match="import its file"):
        Reader(Store()).traces(["imported-gone"], [])


@pytest.mark.parametrize("further", [0, 1], ids=["no step", "a step"])
def test_a_run_that_went_on_and_stopped_again_shows_what_was_changed_meanwhile(further, store):
    run = tools.stored(store, [0.1, 0.2, 0.3], state="stopped")
    reader = Reader(store)
    assert reader.traces([store.run(run)], ["reward"])[0].changes == ()
    store.requeue(run, mine=True)
    store.set_state(run, "running")
    store.log(run, "knob", {"knob": "beta", "to": 0.1, "update": 3, "between": 1}, 4)
    for step in range(4, 4 + further):
        store.append(run, Record(step, 100 * step, {"reward": 0.4, "updates": float(step)}), float(step))
    store.set_state(run, "stopped")
    again = reader.traces([store.run(run)], ["reward"])[0]
    same(again, load(store, [run])[0])
    assert again.changes == ((3, "beta", 0.1),)


@pytest.mark.parametrize("away, words", [(Store.delete, "import its file"),
                                         (lambda store, name: store.trash([name]), "is in the trash: restore it")])
def test_a_deleted_imported_run_is_not_read_from_what_was_kept(away, words, store):
    kept, = imported.keep(store, "log.csv", b"step,reward\n1,0.5\n2,0.75\n", "TRL")
    reader = Reader(store)
    reader.traces([kept.id], [])
    away(store, kept.id)
    with pytest.raises(LabError, match=words):
        reader.traces([kept.id], [])


def test_no_more_runs_are_kept_than_said_own_and_imported(monkeypatch):
    monkeypatch.setattr("labcore.analysis.compare.loading.MOST", 2)
    store = Counting()
    own = tools.stored(store, [0.1, 0.2])
    others = [imported.keep(store, "log.csv", b"step,reward\n1,0.5\n", label)[0].id for label in ("a", "b")]
    reader = Reader(store)
    reader.traces([store.run(own), *others], ["reward"])
    assert len(reader._kept) == 2
    reader.traces([store.run(own)], ["reward"])
    assert store.asked == 4, "it was the oldest, so it was read again"


def test_many_runs_are_asked_for_in_as_many_queries_as_few(store):
    rows = [store.run(tools.stored(store, [0.1, 0.2], kl=[0.5, place])) for place in range(6)]
    asked = []
    for some in (rows[:2], rows):
        with counted() as queries:
            traces = Reader(store).traces(some, ["kl"])
        asked.append(len(queries))
        assert [trace.metrics["kl"][1] for trace in traces] == list(range(len(some)))
    assert asked[0] == asked[1]
    assert [*store.runs_named([row.id for row in rows])] and not store.runs_named(["nothing"])
