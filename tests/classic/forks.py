"""Forks of sessions: a child's spec, and a parent with a checkpoint."""

from dataclasses import replace


def child_of(spec, **changes):
    return replace(spec, parent=("parent", 2), **changes)


def saved_at(session, step: int, folder):
    """All records of a run, of which a checkpoint was made at `step`."""
    records = []
    for record in session.run():
        if record is not None:
            records.append(record)
            if record.step == step:
                folder.mkdir()
                session.save(folder)
    return records
