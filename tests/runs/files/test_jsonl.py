"""Every fault that a user's file can have is told in one sentence with its line."""

import json
import os

import pytest

from labcore.errors import LabError
from labcore.runs.files import jsonl
from labcore.runs.files.jsonl import read_objects, read_text

GOOD = b'{"prompt": "a", "answer": "b"}\n'


def row(value, line):
    """(line number, object) of a line that has an answer."""
    if "answer" not in value:
        raise LabError(f"Line {line} of my.jsonl has no field 'answer': add it.")
    return line, value


def read(tmp_path, content: bytes):
    path = tmp_path / "my.jsonl"
    path.write_bytes(content)
    return read_objects(path, row)


AB = {"prompt": "a", "answer": "b"}


@pytest.mark.parametrize(("content", "rows"), [
    (GOOD, [(1, AB)]),
    (GOOD.strip(), [(1, AB)]),
    (b"\n  \n" + GOOD + b"\n\n" + GOOD + b"\n", [(3, AB), (6, AB)]),
    (b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n"), [(1, AB)]),
    (b'{"answer": 18, "more": [1, null]}', [(1, {"answer": 18, "more": [1, None]})]),
    ('{"prompt": "é\\n你", "answer": "\\ud83d\\ude00"}'.encode(), [(1, {"prompt": "é\n你", "answer": "😀"})]),
    ('{"prompt": "a\u2028b", "answer": "c"}'.encode(), [(1, {"prompt": "a\u2028b", "answer": "c"})]),
])
def test_good_files(tmp_path, content, rows):
    assert read(tmp_path, content) == rows


@pytest.mark.parametrize(("content", "words"), [
    (b"", "my.jsonl is empty"),
    (b"\xef\xbb\xbf", "my.jsonl is empty"),
    (b" \n\n", "my.jsonl is empty"),
    (GOOD + b'{"prompt": "caf\xe9", "answer": "b"}\n', r"Line 2 of my.jsonl is not UTF-8 \(byte 0xe9 at place 16\)"),
    ("\ufeff{}".encode("utf-16-le"), "is UTF-16"),
    (GOOD + b'{"prompt": "a", "ans', "Line 2 of my.jsonl ends in the middle"),
    (GOOD + b'{"prompt": "\xf0\x9f', "Line 2 of my.jsonl ends in the middle"),
    (GOOD + b"hello\n" + GOOD, "Line 2 of my.jsonl is not JSON"),
    (b'{"prompt": "a" "answer": "b"}\n' + GOOD, "Line 1 of my.jsonl is not JSON"),
    (b'{"prompt": "a", "ans\n' + GOOD, "Line 1 of my.jsonl is not JSON"),
    (b"[\n" + GOOD + b"]", "not JSON lines"),
    (json.dumps({"prompt": "a", "answer": "b"}, indent=1).encode(), "not JSON lines"),
    (b'[{"prompt": "a"}]', "Line 1 of my.jsonl is a JSON list, not an object"),
    (GOOD + b"3\n", "Line 2 of my.jsonl is a JSON number, not an object"),
    (GOOD + b"\n" + b'{"prompt": "a"}\n', "Line 3 of my.jsonl has no field 'answer'"),
    (GOOD + b'{"prompt": "\0"}\n', "Line 2 of my.jsonl has NUL bytes"),
    (b'{"prompt": "a", "answer": ' + b"1" * 5000 + b"}\n", "Line 1 of my.jsonl is JSON that cannot be read"),
    (b"[" * 200_000, "Line 1 of my.jsonl is JSON that cannot be read"),
    (GOOD + b'{"prompt": "a", "answer": NaN}\n',
     r"Line 2 of my.jsonl is not JSON \(NaN is no value of JSON at place 27\): write null "
     "or a number, or a text in quotes"),
    (b'{"prompt": "a", "answer": -Infinity}\n', "Line 1 of my.jsonl is not JSON .-Infinity is no value"),
    (b'{"prompt": "a", "answer": 1e999}\n',
     "Line 1 of my.jsonl is JSON that cannot be read .the number 1e999 is beyond"),
])
def test_bad_files(tmp_path, content, words):
    with pytest.raises(LabError, match=words) as caught:
        read(tmp_path, content)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize(("bad", "words"), [
    ([b'{"prompt": "a"}'], "Line 31 of my.jsonl has no field 'answer': add it. The other 30 lines can be used."),
    ([b'{"prompt": "a"}', b"oops"], "2 of 32 lines of my.jsonl cannot be used, the first is line 31. Line 31 has no "
     "field 'answer': add it. Line 32 is not JSON (Expecting value at place 1): write one JSON object per line."),
    ([b'{"prompt": "a"}'] * 1200, "1,200 of 1,230 lines of my.jsonl cannot be used, the first is line 31. Line 31 has "
     "no field 'answer': add it. Line 32 has no field 'answer': add it. Line 33 has no field 'answer': add it. And "
     "1,197 more.")])
def test_bad_lines_among_good_ones_are_counted_and_the_first_are_named(tmp_path, bad, words):
    with pytest.raises(LabError) as caught:
        read(tmp_path, GOOD * 30 + b"\n".join(bad) + b"\n")
    assert str(caught.value) == words


def test_a_file_of_something_else_is_not_read_to_its_end(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(jsonl, "_object", lambda path, index, *_, **__: seen.append(index) or {})
    with pytest.raises(LabError, match=r"^Line 1 of my\.jsonl has no field 'answer': add it\.$"):
        read(tmp_path, b"{}\n" * 3000)
    assert len(seen) == jsonl.HOPELESS


def test_a_file_above_the_limit_is_refused_unread(tmp_path):
    path = tmp_path / "big.jsonl"
    with path.open("wb") as file:
        file.truncate(100 * 2**20)
    with pytest.raises(LabError, match=r"big.jsonl has 100.0 MB, above the limit of 64 MB"):
        read_objects(path, row)
    with pytest.raises(LabError, match=r"100\.0 MB"):
        read_text(path)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(LabError, match=r"There is no file .*none.jsonl"):
        read_objects(tmp_path / "none.jsonl", row)
    with pytest.raises(LabError, match="is a folder"):
        read_objects(tmp_path, row)


def test_a_file_that_cannot_be_opened(tmp_path, monkeypatch):
    path = tmp_path / "shut.txt"
    path.write_text("a")

    def refuse(path, flags):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as refused, pytest.raises(LabError, match="cannot be read \\(Permission denied\\)"):
        refused.setattr(os, "open", refuse)
        read_text(path)


@pytest.mark.parametrize(("content", "words"), [
    (b"", "is empty"), (b"one\ntwo\xff\n", r"line 2 has the byte 0xff"), (b"a\nb\n\0", "NUL byte in line 3"),
])
def test_bad_text(tmp_path, content, words):
    path = tmp_path / "my.txt"
    path.write_bytes(content)
    with pytest.raises(LabError, match=words):
        read_text(path)


def test_text_has_one_kind_of_line_end(tmp_path):
    path = tmp_path / "my.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n")
    assert read_text(path) == "one\ntwo\nthree\n"
