"""Data files of every type give the same rows; what cannot be read says where and what to do."""

import csv
import gzip
import io
import json

import pyarrow
import pytest
from pyarrow import parquet

from labcore.errors import LabError
from labcore.runs.files import jsonl, rows
from labcore.runs.files.jsonl import BadRows
from labcore.runs.files.rows import first_row, read_rows

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


@pytest.mark.parametrize("nested", [False, True])
def test_a_text_that_every_row_repeats_counts_in_every_row(file, monkeypatch, nested):
    """Parquet holds it once, and says so small a size."""
    text = "x" * 2**12
    many = [{"prompt": [{"role": "user", "content": text}] * 4 if nested else text} for _ in range(500)]
    path = file("x.parquet", written(".parquet", many))
    assert path.stat().st_size < 2**15
    held = []
    monkeypatch.setattr(rows, "partial", lambda kind, row: held.append(row) or (lambda: row))
    monkeypatch.setattr(rows, "LIMIT", 2**18)
    with pytest.raises(LabError, match=r"x\.parquet unpacks to more than"):
        read_rows(path, lambda row, line: row)
    assert not held, "it is refused before a row is made"
    monkeypatch.setattr(rows, "LIMIT", 2**24)
    assert read_rows(path, lambda row, line: row) == many


def test_lists_of_texts_that_differ_from_row_to_row(file):
    """Their dictionary is full before the end of a row group, from where texts are written one by one."""
    many = [{"messages": [{"role": "user", "content": f"{number:05}" * 60}, {"role": "assistant", "content": None}]}
            for number in range(5000)]
    sink = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(many), sink, row_group_size=4500)
    assert read_rows(file("x.parquet", sink.getvalue()), lambda row, line: row) == many


def odd(row, line):
    if line % 2 == 0:
        raise LabError(f"Line {line} is even.")
    return line


def test_rows_that_cannot_be_used_are_left_out_where_that_is_asked_for(file):
    path, left_out = file("x.jsonl", written(".jsonl", [{"a": 1}] * 3) + b"{\n"), []
    assert read_rows(path, odd, left_out) == [1, 3]
    assert [line for line, _ in left_out] == [2, 4]
    assert left_out[0][1] == "Line 2 is even." and "Line 4 of x.jsonl is not JSON" in left_out[1][1]


def test_a_file_without_a_usable_row_is_refused_all_the_same(file):
    def no(row, line):
        raise LabError(f"Line {line} is bad.")
    with pytest.raises(LabError, match=r"Line 1 is bad\."):
        read_rows(file("x.jsonl", written(".jsonl")), no, [])


def test_bad_rows_are_counted_and_the_remedy_is_said_once(file):
    path = file("x.jsonl", written(".jsonl", [{"a": 1}] * 5))
    with pytest.raises(BadRows, match=r"2 of 5 lines of x\.jsonl cannot be used.*And then what\.") as error:
        read_rows(path, odd, remedy="And then what.")
    assert (error.value.bad, error.value.good) == (2, 3) and str(error.value).count("And then") == 1


def test_what_unpacks_to_more_than_the_limit_is_refused(file, monkeypatch):
    monkeypatch.setattr(jsonl, "LIMIT", 2**16)
    path = file("x.csv.gz", gzip.compress(b"prompt\n" + b"a\n" * 2**16))
    with pytest.raises(LabError, match="unpacks to more than"):
        read_rows(path, lambda row, line: row)
