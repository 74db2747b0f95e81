"""Files of a program that writes, is cut off, or writes what is no line: read once, in order, with little memory."""

import os

import pytest

from labcore.errors import LabError
from labcore.watch.converting import spool
from tests.watch.tools import numbers, write


def said(name: str = "r", at: dict[str, int] | None = None) -> list[object]:
    return [line.said.get("step") if not line.fault else line.fault for line in spool.lines(spool.folder_of(name),
                                                                                            at or {})[0]]


def test_only_complete_lines_are_read():
    path = write("r", numbers(1), numbers(2))
    with path.open("ab") as file:
        file.write(b'{"kind": "numbers", "st')
    lines, _ = spool.lines(spool.folder_of("r"), {})
    assert [line.said["step"] for line in lines] == [1, 2]
    at = {lines[-1].file: lines[-1].end}
    assert spool.unfinished(spool.folder_of("r"), at) == path.name
    with path.open("ab") as file:
        file.write(b'ep": 3}\n\n')
    assert said(at=at) == [3]


def test_files_are_read_by_the_order_of_their_names_and_others_not_at_all():
    write("r", numbers(3), writer="bb")
    write("r", numbers(2), number=1)
    path = write("r", numbers(1))
    for other in ("x.txt", ".1-a-1.jsonl", "1-a.jsonl", "1-a-1.jsonl.part"):
        (path.parent / other).write_text('{"kind": "numbers", "step": 9}\n')
    assert said() == [1, 2, 3]


def test_neither_links_nor_pipes_are_files_of_a_program(tmp_path):
    """They would be cut and deleted as well, or waited for."""
    path, mine = write("r", numbers(1)), tmp_path / "mine.jsonl"
    mine.write_text('{"kind": "numbers", "step": 9}\n')
    (path.parent / "0000000000002-bb-00000.jsonl").symlink_to(mine)
    os.mkfifo(path.parent / "0000000000003-cc-00000.jsonl")
    (path.parent / "0000000000004-dd-00000.jsonl").mkdir()
    assert said() == [1]
    folder = spool.folder_of("r")
    spool.give_back(folder, {each.name: 10**9 for each in path.parent.iterdir()})
    spool.forget(folder)
    assert mine.read_text().startswith("{") and len([*path.parent.iterdir()]) == 3


def test_a_line_that_is_too_long_is_skipped(monkeypatch):
    monkeypatch.setattr(spool, "LINE_BYTES", 100)
    write("r", numbers(1), b"x" * 1000, numbers(2))
    found = said()
    assert found[0] == 1 and found[2] == 2 and "longer than" in str(found[1])
    path = write("q", numbers(1))
    with path.open("ab") as file:
        file.write(b"x" * 5000)  # it is being written
    assert said("q") == [1]


def test_little_is_read_at_once(monkeypatch):
    monkeypatch.setattr(spool, "AT_ONCE", 200)
    write("r", *(numbers(step) for step in range(1, 101)))
    at: dict[str, int] = {}
    steps, more = [], True
    while more:
        lines, more = spool.lines(spool.folder_of("r"), at)
        assert sum(len(str(line.said)) for line in lines) < 400
        steps += [line.said["step"] for line in lines]
        at = {line.file: line.end for line in lines}
    assert steps == [*range(1, 101)]


def test_files_that_were_read_are_deleted_but_the_newest_of_each_writer():
    for number in range(3):
        write("r", numbers(number + 1), number=number)
    write("r", numbers(9), writer="bb")
    lines, _ = spool.lines(spool.folder_of("r"), {})
    at = {line.file: line.end for line in lines[1:]}
    left = spool.forget_read(spool.folder_of("r"), at)
    assert [path.name[14:22] for path in spool.files(spool.folder_of("r"))] == ["aa-00000", "aa-00002", "bb-00000"]
    assert len(left) == 2


def test_read_files_take_no_disk_space_and_can_grow():
    path = write("r", *(numbers(step, loss="x" * 5000) for step in range(20)))
    lines, _ = spool.lines(spool.folder_of("r"), {})
    at, size = {lines[-1].file: lines[-1].end}, path.stat().st_size
    spool.give_back(spool.folder_of("r"), {lines[-2].file: lines[-2].end})
    assert path.stat().st_blocks
    spool.give_back(spool.folder_of("r"), at)
    assert path.stat().st_size == size and path.stat().st_blocks == 0
    write("r", numbers(21))
    assert said(at=at) == [21]


def test_an_invalid_id_has_no_folder():
    with pytest.raises(LabError, match="cannot be an id"):
        spool.folder_of("../x")
