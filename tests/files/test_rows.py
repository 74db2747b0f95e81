"""Data files of every type give the same rows; what cannot be read says where and what to do."""

from __future__ import annotations

import csv
import gzip
import io
import json

import pyarrow
import pytest
from pyarrow import parquet

from labcore.errors import LabError
from labcore.files import jsonl
from labcore.files.rows import first_row, read_rows

ROWS = [{"prompt": "2+3=", "answer": "5"}, {"prompt": "a, \"b\"\nc", "answer": "ü"}]


def written(kind: str, rows=ROWS) -> bytes:
    text = io.StringIO(newline="")
    if kind in (".csv", ".tsv"):
        table = csv.DictWriter(text, [*rows[0]], delimiter="," if kind == ".csv" else "\t")
        table.writeheader()
        table.writerows(rows)
        return text.getvalue().encode()
    if kind == ".parquet":
        sink = io.BytesIO()
        parquet.write_table(pyarrow.Table.from_pylist(rows), sink)
        return sink.getvalue()
    if kind == ".json":
        return json.dumps(rows, indent=1).encode()
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture
def file(tmp_path):
    def make(name: str, content: bytes):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name
    return make


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", [".jsonl", ".json", ".csv", ".tsv", ".parquet"])
def test_each_type_gives_the_same_rows(file, kind, packed):
    content = written(kind)
    path = file(f"x{kind}.gz", gzip.compress(content)) if packed else file(f"x{kind}", content)
    assert read_rows(path, lambda row, line: row) == ROWS and first_row(path) == ROWS[0]


def test_rows_know_where_they_stand(file):
    assert read_rows(file("x.csv", written(".csv")), lambda row, line: line) == [2, 4]
    assert read_rows(file("x.json", written(".json")), lambda row, line: line) == [1, 2]


def test_an_empty_cell_is_a_field_that_is_missing(file):
    assert read_rows(file("x.csv", b"prompt,answer\na,\n"), lambda row, line: row) == [{"prompt": "a"}]


def test_parquet_has_turns(file):
    turns = [{"prompt": [{"role": "user", "content": "2+3="}], "answer": "5"}]
    assert read_rows(file("x.parquet", written(".parquet", turns)), lambda row, line: row) == turns


@pytest.mark.parametrize("name, content, words", [
    ("x.csv", b"prompt,answer\na,b,c\n", "Line 2 of x.csv has 3 cells and the header 2"),
    ("x.csv", b'prompt,answer\n"a', "x.csv is not CSV"), ("x.csv", b"prompt\n\xff\n", "x.csv is not UTF-8"),
    ("x.json", b'[{"a": 1}, 5]', "Row 2 of x.json is not an object"), ("x.json", b"[{", "x.json is not JSON"),
    ("x.json", b'[{"answer": NaN}]', "x.json is not JSON"), ("x.parquet", b"PAR1xx", "is not a whole Parquet file"),
    ("x.jsonl.gz", b"\x1f\x8bxx", "not a whole gzip file"), ("x.csv", b"  ", "x.csv is empty")])
def test_what_cannot_be_read(file, name, content, words):
    with pytest.raises(LabError, match=words):
        read_rows(file(name, content), lambda row, line: row)


def test_what_unpacks_to_more_than_the_limit_is_refused(file, monkeypatch):
    monkeypatch.setattr(jsonl, "LIMIT", 2**16)
    path = file("x.csv.gz", gzip.compress(b"prompt\n" + b"a\n" * 2**16))
    with pytest.raises(LabError, match="unpacks to more than"):
        read_rows(path, lambda row, line: row)
