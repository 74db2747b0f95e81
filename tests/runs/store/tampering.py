"""A store with rows in every table, what somebody may have written into its cells, and all that reads them."""

from collections.abc import Callable

from labcore.runs import halving, knob_history, sweep, titles
from labcore.runs.lists.all_runs import Shelf
from labcore.runs.lists.search import search
from labcore.runs.spec.session import Record
from labcore.runs.store import schema
from labcore.runs.store.store import Store
from tests.runs.fake import grpo

VALUES = ["", "x", "NaN", "null", "[]", "{", '{"reward": "much"}', '{"reward": NaN}', '{"reward": 1e999}',
          '{"reward": null}', f'{{"reward": {"9" * 400}}}', '{"text": 7, "knob": [], "value": {}, "rule": 3}', "[7]",
          '[{"a": 1}]', b"\xff\xfe", None, -1, 0, 2**62, 1e308, float("inf"), -0.5]
CELLS = [(table.name, column.name) for table in schema.metadata.sorted_tables for column in table.columns]


def filled(url: str) -> str:
    """Fill the store at `url`: every table has rows, and a run in it goes. Returns the run's id."""
    store = Store(url)
    asha = halving.Halving("reward", 3, 2).to_json()
    for run_id in (ids := store.create_all([grpo(), grpo(beta=0.1)], sweep="sweep-a", halving=asha)):
        store.claim(run_id)
        for step in range(1, 6):
            store.append(run_id, Record(step, step, {"reward": step / 3, "kl": 1e-9}), float(step))
        store.set_state(run_id, "running")
        store.log(run_id, "knob", {"knob": "beta", "from": 0.1, "to": 0.2, "update": 3, "between": 0, "text": "β"}, 3)
        store.log(run_id, "rung", {"metric": "reward", "value": 1.0, "kept": True, "text": "kept"}, 3)
        store.ask(run_id, "set", {"knob": "beta", "value": 0.2})
        store.mark(run_id, star=True, tags=["a"], note="b")
    store.set_state(ids[1], "stopped")
    store.dispose()
    return ids[0]


READS: list[Callable[[Store, str], object]] = [
    lambda store, run_id: store.reconcile(),
    lambda store, run_id: [titles.title(row) for row in store.runs()],
    lambda store, run_id: search(Shelf(store).entries(), "beta>0.05"),
    lambda store, run_id: [sum(step.metrics.values()) + step.seconds for step in store.steps_after(run_id)],
    lambda store, run_id: [sum(each or 0 for each in column) for column in store.columns([run_id], ["reward"])[run_id]],
    lambda store, run_id: [sum(values) for _, values in store.last_values([run_id], "reward").values()],
    lambda store, run_id: (store.logged(run_id), store.asked(run_id), store.controls(run_id)),
    lambda store, run_id: knob_history.KnobHistory(store.run(run_id).spec, store.events_after(run_id)).moves,
    lambda store, run_id: (store.decisions("sweep-a"), store.unjudged(), sweep.sweep(store, "sweep-a")),
    lambda store, run_id: store.create(grpo()),
    lambda store, run_id: store.set_state(run_id, "stopped"),
    lambda store, run_id: store.purge(2e9)]
