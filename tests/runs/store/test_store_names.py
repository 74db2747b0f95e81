"""Names and texts that some database cannot keep: what becomes of them is the same in every one."""

from dataclasses import replace

import pytest

from labcore.errors import LabError, NoSuchRun
from labcore.runs.store import schema
from labcore.runs.store.rows import Event, Step
from labcore.runs.store.store import Store
from tests.runs.fake import grpo
from tests.runs.files.made_names import HOSTILE


@pytest.fixture
def store(each_database):
    return Store()


def test_a_text_with_nul_is_kept_without_it_and_names_no_run(store):
    """PostgreSQL cannot keep it. A link may hold one, and what an environment said when it broke."""
    run_id = store.create(grpo())
    for name in ("a\0b", f"{run_id}\0"):
        with pytest.raises(NoSuchRun):
            store.run(name)
        with pytest.raises(NoSuchRun):
            store.mark(name, star=True)
        assert store.runs_named([name]) == {} and store.sweep_runs(name) == [] and store.children(name) == []
    store.mark(run_id, note="a\0b")
    store.set_message(run_id, "c\0d")
    row = store.run(run_id)
    assert (row.note, row.message) == ("a\N{REPLACEMENT CHARACTER}b", "c\N{REPLACEMENT CHARACTER}d")


def test_a_text_with_half_a_character_is_kept_without_it_wherever_it_stands(store):
    """No database keeps it: UTF-8 has none. An error may bring it, a tokenizer or the name of a file."""
    half, whole = "a\ud800b", "a\N{REPLACEMENT CHARACTER}b"
    run_id = store.create(grpo())
    with pytest.raises(NoSuchRun):
        store.run(half)
    store.log(run_id, "note", {"text": half}, 0)
    store.ask(run_id, "set", {"knob": "beta", "value": half})
    store.mark(run_id, note=half, tags=[half])
    store.set_message(run_id, half)
    store.keep_summaries({run_id: half})
    store.set_state(run_id, "failed", half, log=("failed", {"text": half}))
    row = store.run(run_id)
    assert (row.note, row.tags, row.message, store.summaries()) == (whole, (whole,), whole, {run_id: whole})
    assert [event.payload.get("text") for event in store.events_after(run_id)] == [None, whole, whole]
    assert [control.payload["value"] for control in store.controls(run_id)] == [whole]
    other = replace(row, id="other", tags=(half,), message=half, spec=replace(row.spec, mix=half))
    assert store.add(other, [Step(1, 0, 0, 0.5, {})], [Event(1, 0, "note", {"text": half}, 0.5)])
    assert store.run("other").spec.mix == whole and store.run("other").tags == (whole,)
    for name in (half, *HOSTILE):
        with pytest.raises(LabError, match="cannot be an id"):
            store.add(replace(other, id=name), [], [])


def test_a_run_of_an_environment_with_a_long_name_has_a_name_that_every_database_keeps(store):
    task = f"companies/{'Warehouse' * 20}-v0"
    run_id = store.create(replace(grpo(), task=task))
    assert store.run(run_id).spec.task == task
    assert run_id.startswith("grpo-") and "Warehouse-v0-" in run_id and len(run_id) <= schema.MOST_NAME


def test_a_name_that_is_too_long_is_refused_alike_by_every_database(store):
    """Imported metrics lie in a folder, which somebody may have given any name."""
    run, too_long = store.run(store.create(grpo())), "x" * 101
    for name, given in ((f"imported-{too_long}", lambda name: store.mark(name, star=True)),
                        (f"imported-{too_long}", lambda name: store.trash([name])),
                        (too_long, lambda name: store.add(replace(run, id=name, state="stopped"), [], []))):
        with pytest.raises(LabError, match=rf"^The name '.*' has {len(name)} letters, more than 100: give a shorter"):
            given(name)
    assert store.marks() == {} and len(store.runs()) == 1
    store.mark(f"imported-{'x' * 91}", star=True)


def test_a_longer_name_of_before_stays_usable(lab_home):
    """SQLite took any length."""
    store, name, imported = Store(), "x" * 120, f"imported-{'x' * 120}"
    run_id = store.create(grpo())
    store.set_state(run_id, "stopped")
    with store._writing() as connection:
        connection.execute(schema.runs.update(), {"id": name})
        connection.execute(schema.marks.insert(), {"id": imported, "star": True})
    store.mark(name, note="long")
    store.mark(imported, note="long too")
    assert {key: each.note for key, each in store.marks().items()} == {name: "long", imported: "long too"}
    store.trash([name, imported])
    store.restore([name])
    assert store.run(name).note == "long"
    store.delete(name)
    store.delete(imported)
    assert store.marks() == {} and store.runs() == []
