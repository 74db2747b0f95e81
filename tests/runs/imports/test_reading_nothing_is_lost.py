"""Made-up files of every kind: what an import says it read is stored and drawn, and every other number is said."""

import csv
import gzip
import io
import json
from math import inf, isfinite, nan

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labcore.analysis.compare.loading import load
from labcore.errors import LabError
from labcore.runs.imports import imported
from labcore.runs.imports.reading import parse
from labcore.runs.store.rows import COUNTERS
from labcore.runs.store.store import Store

AXES = ("step", "train/global_step", "_step", "time/iterations", "time/total_timesteps", "training/global_step")
NAMES = ("reward", "kl", "loss", "train/reward", "eval/mean_reward", "rollout/ep_rew_mean", "critic/rewards/mean",
         "num_tokens", "_runtime", "epoch", "secret")
Row = dict[str, float]


@st.composite
def tables(draw: st.DrawFn) -> list[Row]:
    """Rows with some axes and some numbers, with holes, NaN and infinities; some begin again, some are in disorder."""
    axes = draw(st.lists(st.sampled_from(AXES), min_size=1, max_size=3, unique=True))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True))
    number = st.sampled_from((0.0, 0.25, -1.5, 3.0, 1e9, nan, inf, -inf))
    rows = []
    for _ in range(draw(st.integers(1, 2))):
        for step in draw(st.lists(st.integers(0, 8), min_size=1, max_size=6)):
            row = {axis: float(step * (1 + place)) for place, axis in enumerate(axes) if draw(st.integers(0, 5))}
            rows.append(row | {name: draw(number) for name in names if draw(st.booleans())})
    return [{key: row.get(key) for key in (*axes, *names)} for row in rows]


def as_csv(rows: list[Row], delimiter: str = ",") -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, [*rows[0]], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def as_lines(rows: list[Row]) -> bytes:
    return "".join(json.dumps({key: each for key, each in row.items() if each is not None}) + "\n"
                   for row in rows).encode()


def as_state(rows: list[Row]) -> bytes:
    return json.dumps({"epoch": 1.0, "log_history": rows}, indent=2).encode()


def as_parquet(rows: list[Row]) -> bytes:
    """As pyarrow and Polars write it, which know a missing number from NaN."""
    import pyarrow as pa
    from pyarrow.parquet import write_table
    file = io.BytesIO()
    write_table(pa.table({key: pa.array([row[key] for row in rows], pa.float64()) for key in rows[0]}), file)
    return file.getvalue()


KINDS = {"csv": as_csv, "tsv": lambda rows: as_csv(rows, "\t"), "jsonl": as_lines, "json": as_state,
         "parquet": as_parquet, "csv.gz": lambda rows: gzip.compress(as_csv(rows))}


def in_the_file(rows: list[Row]) -> set[tuple[str, str]]:
    """(column, number) of every number of a file."""
    return {(column, str(float(number))) for row in rows for column, number in row.items() if number is not None}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(rows=tables())
def test_every_number_is_read_or_said(kind, rows):
    try:
        runs = parse(f"log.{kind}", KINDS[kind](rows))
    except LabError as error:
        assert str(error).count(". ") == 0
        return
    found, left = set(), set().union(*(run.left for run in runs))
    for run in runs:
        for key, column in run.mapped.items():
            there = run.there[key] if key in run.there else run.columns[key] == run.columns[key]
            found |= {(column, str(number)) for number in run.columns[key][there].tolist()}
            assert there.any(), f"{key} is said to be read, and no row has it"
        assert not set(run.mapped.values()) & {column for column, why in run.left.items() if "of its" not in why}
    counters = {column for run in runs for key, column in run.mapped.items() if key in COUNTERS}
    missing = {(column, number) for column, number in in_the_file(rows) - found
               if column not in left and column not in counters}
    assert missing == set()


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(kind=st.sampled_from(sorted(KINDS)), rows=tables())
def test_what_is_said_to_be_read_is_stored_and_drawn(kind, rows):
    store = Store()
    try:
        kept = imported.keep(store, f"log.{kind}", KINDS[kind](rows))
    except LabError:
        return
    for about in kept:
        steps, (trace,) = imported.rows(about.id), load(store, [about.id])
        stored = {key for step in steps for key in step.metrics}
        assert {*about.mapped} - {*COUNTERS} == stored - {"updates"} | {*about.mapped} & {"updates"}
        assert len(steps) == about.steps == trace.axes["step"].size
        drawn = {key for key in stored if any(isfinite(step.metrics.get(key, nan)) for step in steps)}
        assert {*trace.metrics} == drawn
        for key in drawn:
            own = [step.metrics[key] for step in steps if isfinite(step.metrics.get(key, nan))]
            assert trace.column(key)[1].tolist() == own
        assert {key for key in COUNTERS if key in about.mapped} - {"step"} <= {*trace.axes}


def test_a_frame_of_pandas_comes_back_from_parquet():
    frame = pd.DataFrame({"step": [1, 2, 3], "reward": [0.25, None, 0.75], "name": ["a", "a", "b"]})
    frame.to_parquet(file := io.BytesIO())
    run, = parse("log.parquet", file.getvalue())
    assert [row.metrics.get("reward") for row in run.steps()] == [0.25, 0.75] and run.left == {
        "name": "not known to the lab"}
