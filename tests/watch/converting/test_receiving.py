"""What comes in while others write: bytes of two senders of one run never mix."""

import threading

import pytest

from labcore.errors import LabError
from labcore.watch.converting import receiving, spool


def test_lines_of_several_senders_at_once_stay_whole():
    def send(letter: str) -> None:
        for _ in range(20):
            receiving.receive("r", "", 0, f'{{"kind": "event", "text": "{letter * 2000}"}}\n'.encode())

    threads = [threading.Thread(target=send, args=(letter,)) for letter in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines, more = spool.lines(spool.folder_of("r"), {})
    assert len(lines) == 40 and not more and {line.fault for line in lines} == {""}
    assert {len({*line.said["text"]}) for line in lines} == {1}


def test_a_full_disk_is_reported_to_the_sender(monkeypatch, tmp_path):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="set RL_LAB_HOME"):
        receiving.receive("r", "", 0, b"{}\n")
