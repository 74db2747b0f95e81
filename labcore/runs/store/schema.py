"""The store's tables.

Seven tables: runs, steps (one row per step, never changed), events (append-only), controls (what was asked of a run and
what became of it), marks (stars, tags, projects, notes and the trash, of runs and of imported metrics), sweeps
(those with a name or with early stopping) and watched (the read positions in the files of watched runs).
A change of them raises the version and is a script in `revisions`; `migrations` brings a store of an earlier version
up to this one.
"""

import sqlalchemy as sa

from labcore.runs.store.cells import Name, Number, Process, Seconds, State, Whole, Words

VERSION = "11"
MOST_NAME = 100  # letters of a run's name


metadata = sa.MetaData()

# version, and since version 6 number: the highest that a run was given, which no other run gets, whatever is deleted.
meta = sa.Table("lab_meta", metadata, sa.Column("key", sa.String(40), primary_key=True),
                sa.Column("value", sa.String(200), nullable=False))

runs = sa.Table(
    "lab_runs", metadata,
    sa.Column("id", Name(MOST_NAME), primary_key=True),
    sa.Column("spec", Words, nullable=False),
    sa.Column("state", State(20), nullable=False, index=True),
    sa.Column("message", Words, nullable=False, default=""),
    sa.Column("created", Seconds, nullable=False, index=True),
    sa.Column("started", Seconds), sa.Column("ended", Seconds),
    sa.Column("pid", Process), sa.Column("host", Name(200)),
    sa.Column("process_started", Seconds),  # tells the process from a later one with the same pid
    sa.Column("heartbeat", Seconds),
    sa.Column("step", Whole, nullable=False, default=0),
    sa.Column("seconds", Seconds, nullable=False, default=0.0),
    sa.Column("base", Name(MOST_NAME)),
    sa.Column("parent", Name(MOST_NAME)),  # since version 2: the run that it is a fork of
    sa.Column("sweep", Name(MOST_NAME)),  # since version 2: the sweep that it is part of
    sa.Column("digest", Words, key="summary"),  # since version 3: its summary for lists
    sa.Column("number", Number),  # since version 5: counts the lab's runs as they are made
    sa.Column("places", Whole),  # since version 9: the number of places, for one of which it waits
    sa.Column("stops_early", sa.Boolean),  # since version 9: early stopping asked it to stop
)

marks = sa.Table(  # since version 4; a run or an import without a row has no marks
    "lab_marks", metadata,
    sa.Column("id", Name(MOST_NAME), primary_key=True),
    sa.Column("star", sa.Boolean, nullable=False, default=False),
    sa.Column("tags", Words, nullable=False, default="[]"), sa.Column("note", Words, nullable=False, default=""),
    sa.Column("deleted", Seconds),  # when it was put into the trash
    sa.Column("project", Words),  # since version 10: the label that groups it with others
)

sweeps = sa.Table(  # since version 7; a sweep without a row has neither name nor early stopping
    "lab_sweeps", metadata,
    sa.Column("id", Name(MOST_NAME), primary_key=True),
    sa.Column("halving", Words, nullable=False),  # how its runs are stopped early; empty where they are not
    sa.Column("decisions", Whole, nullable=False, default=0),  # how many were made
    sa.Column("fault", Words),  # since version 8: why early stopping does not work
    sa.Column("name", Words),  # since version 10: the name that its owner gave it
)

steps = sa.Table(
    "lab_steps", metadata,
    sa.Column("run_id", Name(MOST_NAME), primary_key=True),
    sa.Column("step", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("tokens", sa.BigInteger, nullable=False), sa.Column("env_steps", sa.BigInteger, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False), sa.Column("metrics", sa.Text, nullable=False),
    sqlite_with_rowid=False,  # rows lie in (run, step) order: "steps after n" reads neighbours
)

events = sa.Table(
    "lab_events", metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run_id", Name(MOST_NAME), nullable=False), sa.Column("step", Whole, nullable=False),
    sa.Column("kind", Name(40), nullable=False), sa.Column("payload", Words, nullable=False),
    sa.Column("time", Seconds, nullable=False), sa.Index("lab_events_of_run", "run_id", "id"),
)

controls = sa.Table(
    "lab_controls", metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run_id", Name(MOST_NAME), nullable=False), sa.Column("command", Name(20), nullable=False),
    sa.Column("payload", Words, nullable=False), sa.Column("state", Name(20), nullable=False),
    sa.Column("asked", Seconds, nullable=False), sa.Column("settled", Seconds),
    sa.Column("step", Whole), sa.Column("refused", Words),
    sa.Index("lab_controls_open", "run_id", "state", "id"),
)

watched = sa.Table(  # since version 11
    "lab_watched", metadata,
    sa.Column("id", Name(MOST_NAME), primary_key=True),  # name of the watched folder
    sa.Column("place", Words, nullable=False),  # the read positions, and the runs that hold the rows
)
