"""What others give to the lab is read within bounds, and every fault of it is one sentence."""

import io
import math
import os
import socket
from pathlib import Path

import pytest

from labcore.errors import LabError
from labcore.runs.files import untrusted
from labcore.runs.files.untrusted import NotJSON, json_of


@pytest.fixture(params=["device", "pipe", "socket", "folder"])
def no_file(request, tmp_path, monkeypatch):
    """Something with a path that is no regular file."""
    path = tmp_path / "it.csv"
    if request.param == "device":
        path.symlink_to("/dev/zero")
    elif request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "socket":
        monkeypatch.chdir(tmp_path)  # the path of a socket is short
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(path.name)
    else:
        path.mkdir()
    return path


def test_what_is_no_regular_file(no_file):
    with pytest.raises(LabError, match=r"is a device or a pipe|is a folder|No such device"):
        untrusted.read(no_file)


def test_the_limit_holds_whatever_size_the_folder_says():
    said = os.stat("/proc/self/maps").st_size
    assert said == 0
    with pytest.raises(LabError, match="above the limit"):
        untrusted.read(Path("/proc/self/maps"), limit=20)


def test_no_more_is_read_than_the_limit(tmp_path, monkeypatch):
    class Counted(io.FileIO):
        def read(self, size=-1):
            asked.append(size)
            return super().read(size)

    path, asked = tmp_path / "long", []
    path.write_bytes(bytes(1000))
    monkeypatch.setattr(untrusted, "open", Counted, raising=False)
    with pytest.raises(LabError, match="above the limit"):
        untrusted.read(path, limit=10)
    assert asked == [11]
    assert untrusted.read(path, limit=1000) == bytes(1000)


@pytest.mark.parametrize(("text", "words"), [
    ("[" * 200_000, "nests too deep"), ('{"a":' * 150 + "1" + "}" * 150, "nests too deep"), ("1" * 401, "401 digits"),
    ("1" * 5000, "5,000 digits"), (b"\xff", "not UTF-8"), ('"\\ud800"', "half a character"), ("{", "in line 1"),
    ("", "in line 1"), ('{"a": "NaN",\n"b": [NaN]}', "NaN is no value of JSON in line 2"),
    ("-Infinity", "-Infinity is no"),
    ('{"a": Infinity}', "Infinity is no value"), ('[1e999]', "the number 1e999 is beyond any float")])
def test_json_that_cannot_be_used(text, words):
    with pytest.raises(NotJSON, match=words):
        json_of(text)


def test_what_programs_in_python_write_is_read_where_it_is_theirs():
    assert json_of('{"limit": [0.0, Infinity], "b": -Infinity}', constants=True) == {
        "limit": [0.0, math.inf], "b": -math.inf}


def test_json_that_can_be_used():
    assert json_of('{"a": "NaN, -Infinity \\"NaN"}') == {"a": 'NaN, -Infinity "NaN'}
    assert json_of(b'\xef\xbb\xbf{"a": [1, 2.5, null, "\\ud83d\\ude00"]}') == {"a": [1, 2.5, None, "😀"]}
    assert json_of("[" * 90 + "]" * 90)
    assert json_of(f"[{'[],' * 500}0]")[-1] == 0
