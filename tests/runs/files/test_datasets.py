"""Datasets of the hub by name: which files are taken, that they are kept, and what is said where they cannot be had."""

import errno
import io
import os

import pyarrow
import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import OfflineModeIsEnabled
from pyarrow import parquet

from labcore.errors import LabError
from labcore.runs import jobs
from labcore.runs.files import datasets, uploads
from labcore.runs.files.datasets import CONVERTED, Dataset, fetch, parse
from labcore.runs.files.rows import read_rows
from tests.every import every
from tests.runs.files.hub import serving


def rows(first: int, count: int, text: str = "") -> list[dict[str, str]]:
    return [{"question": f"{number}+1?{text}", "answer": str(number + 1)} for number in range(first, first + count)]


def table(some) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(some), sink)
    return sink.getvalue()


REPOS = {
    "org/sums": {CONVERTED: {"main/train/0000.parquet": table(rows(0, 3)), "main/test/0000.parquet": table(rows(9, 2)),
                             "other/train/0000.parquet": table(rows(50, 1))}},
    "org/shards": {CONVERTED: {f"default/partial-train/{place:04}.parquet": table(rows(10 * place, 10))
                               for place in range(3)}},
    "org/plain": {"main": {"README.md": b"#", "data/train.jsonl": b'{"prompt": "a", "answer": "b"}\n',
                           "data/test-00000-of-00001.jsonl": b'{"prompt": "c", "answer": "d"}\n'}},
    "org/configs": {CONVERTED: {"a/train/0000.parquet": table(rows(0, 1)), "b/train/0000.parquet": table(rows(0, 1))}},
    "org/splits": {CONVERTED: {"default/one/0000.parquet": table(rows(0, 1)),
                               "default/two/0000.parquet": table(rows(0, 1))}},
    "org/code": {"main": {"load.py": b"print(1)", "weights.bin": b"x"}},
}


@pytest.fixture
def hub(monkeypatch):
    with serving(REPOS) as served:
        monkeypatch.setattr(datasets, "_api", lambda: HfApi(endpoint=served.url, token=False))
        yield served


def read(found) -> list[dict[str, str]]:
    return read_rows(found.path, lambda row, line: dict(row))


@every("name, asked", [
    ("openai/gsm8k", Dataset("openai/gsm8k")), ("openai/gsm8k:test", Dataset("openai/gsm8k", "", "test")),
    ("openai/gsm8k:main/test", Dataset("openai/gsm8k", "main", "test")), ("a/b.jsonl", None), ("a/b/c", None),
    ("a/b.parquet", None), ("a", None), ("../a", None), ("./a", None), ("a/b:c:d", None), ("/a/b", None),
    ("a/b.json.gz", None), ("a/b:c/d/e", None), ("a/", None), ("", None), ("a b/c", None)])
def test_which_names_are_those_of_datasets(name, asked):
    assert parse(name) == asked


def test_a_file_that_is_here_is_no_dataset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org").mkdir()
    assert parse("org/name") == Dataset("org/name")
    (tmp_path / "org" / "name").write_text("x")
    assert parse("org/name") is None


@pytest.mark.parametrize("name, expected, called", [
    ("org/sums", rows(0, 3), "sums-main-train.parquet"), ("org/sums:test", rows(9, 2), "sums-main-test.parquet"),
    ("org/sums:other/train", rows(50, 1), "sums-other-train.parquet"),
    ("org/shards:train", rows(0, 30), "shards-train.parquet"),
    ("org/plain", [{"prompt": "a", "answer": "b"}], "plain-train.jsonl"),
    ("org/plain:test", [{"prompt": "c", "answer": "d"}], "plain-test.jsonl")])
def test_a_split_becomes_an_upload(hub, name, expected, called):
    found = fetch(parse(name))
    assert read(found) == expected and found.path.name == called and not found.note
    assert uploads.root() in found.path.parents


def test_a_shard_is_fetched_once(hub):
    first = fetch(parse("org/sums"))
    hub.asked.clear()
    assert fetch(parse("org/sums")) == first
    assert hub.asked and not [path for path in hub.asked if path.startswith("GET /datasets/")]


def test_no_more_is_taken_than_an_upload_may_have(hub, monkeypatch):
    sizes = [*map(len, REPOS["org/shards"][CONVERTED].values())]
    monkeypatch.setattr(datasets, "LIMIT", sum(sizes[:2]))
    found = fetch(parse("org/shards"))
    assert read(found) == rows(0, 20) and found.note.startswith("Only the first 20 rows of org/shards are used")
    assert not any("0002.parquet" in path for path in hub.asked)


@pytest.mark.parametrize("name, words", [
    ("org/none", "The hub has no dataset 'org/none' that is open to you"),
    ("org/sums:dev", r"has no 'dev' among its splits \(test, train\): write for example org/sums:test"),
    ("org/sums:x/train", r"has no 'x' among its configurations \(main, other\)"),
    ("org/configs", r"has several configurations \(a, b\): write for example org/configs:a/SPLIT"),
    ("org/splits", r"has several splits \(one, two\): write for example org/splits:one"),
    ("org/code", "has no data files of a type that the lab reads")])
def test_what_is_not_there_is_said(hub, name, words):
    with pytest.raises(LabError, match=words):
        fetch(parse(name))


@pytest.mark.parametrize("refuses, words", [
    ((403, "GatedRepo"), "org/sums is gated: accept its terms on https://huggingface.co/datasets/org/sums"),
    ((401, "RepoNotFound"), "no dataset 'org/sums' that is open to you"),
    ((503, ""), r"refused to send org/sums \(HTTP 503\): try again later")])
def test_a_hub_that_refuses_is_said(monkeypatch, refuses, words):
    with serving(REPOS, refuses) as served:
        monkeypatch.setattr(datasets, "_api", lambda: HfApi(endpoint=served.url, token=False))
        monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
        with pytest.raises(LabError, match=words) as error:
            fetch(parse("org/sums"))
    assert str(error.value).count(". ") == 0


class Broken:
    """A client that raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def list_repo_tree(self, *_, **__):
        raise self.error


@pytest.mark.parametrize("error, words", [
    (OfflineModeIsEnabled("offline"), "HF_HUB_OFFLINE is set, so org/sums cannot be downloaded: unset it"),
    (RuntimeError("no route"), r"The hub could not be reached for org/sums \(RuntimeError\): connect to the network"),
    (OSError(errno.ENOSPC, "No space left on device"), r"cannot be kept in .* \(No space left on device\): free some")])
def test_a_hub_that_cannot_be_reached_is_said(monkeypatch, error, words):
    monkeypatch.setattr(datasets, "_api", lambda: Broken(error))
    with pytest.raises(LabError, match=words):
        fetch(parse("org/sums"))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_record_that_cannot_be_kept_is_said(hub, code, monkeypatch):
    def write_text(*_):
        raise OSError(code, os.strerror(code))
    monkeypatch.setattr(datasets.atomic, "write_text", write_text)
    with pytest.raises(LabError, match=rf"dataset org/sums cannot be kept in .* \({os.strerror(code)}\): free"):
        fetch(parse("org/sums:test"))


def test_without_a_network_what_was_fetched_before_is_used(hub, monkeypatch):
    before = fetch(parse("org/sums:test"))
    monkeypatch.setattr(datasets, "_api", lambda: Broken(ConnectionError("no route")))
    found = fetch(parse("org/sums:test"))
    assert found.path == before.path and found.note.endswith("so what was fetched before is used.")
    found.path.unlink()
    with pytest.raises(LabError, match="could not be reached"):
        fetch(parse("org/sums:test"))


def test_the_job_gives_the_upload(hub):
    found = jobs.compute({"job": "dataset", "name": "org/sums:test"})
    assert found["path"].endswith("sums-main-test.parquet") and not found["note"]
    with pytest.raises(LabError, match="'sums' is not a dataset"):
        jobs.compute({"job": "dataset", "name": "sums"})
