"""`rl-lab watch` without a folder lists the watched runs."""

from __future__ import annotations

from labcore.cli.main import main
from labcore.runs.store.store import Store
from tests.watch.tools import begin, numbers, read, write


def test_watched_runs_are_listed_and_the_way_to_send_one_is_said(capsys):
    assert main(["watch"]) == 0 and "No watched runs yet" in capsys.readouterr().out
    write("r", begin(name="qwen"), numbers(1, reward=0.5), {"kind": "end"})
    read(Store())
    assert main(["watch"]) == 0
    out = capsys.readouterr().out
    assert "qwen #1" in out and "rl-lab watch DIR" in out and "No watched runs" not in out
