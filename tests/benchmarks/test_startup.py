"""The stages of a start, here and in a fork of what is preloaded. Times are never asserted."""

import time

import pytest

from benchmarks import startup
from labcore.errors import LabError


def test_stages_come_one_after_the_other():
    begun = time.monotonic()
    imported, built, stepped = startup.first_step("tiny", "cpu", "sort", begun)
    assert 0 <= imported < built < stepped <= time.monotonic() - begun


def test_medians_are_those_of_each_stage():
    runs = iter([[1, 5, 9], [3, 4, 20], [2, 6, 10]])
    assert startup.medians(lambda: next(runs), 3) == [2, 5, 10]


def test_a_process_that_fails_is_said(monkeypatch, tmp_path, capfd):
    (tmp_path / "torch.py").write_text("raise SystemExit('this torch is broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(LabError, match="before its first step"):
        startup.cold("tiny", "cpu", "sort")
    assert "this torch is broken" in capfd.readouterr().err


@pytest.mark.long
def test_cold_and_warm_are_measured(capsys):
    assert startup.main(["--times", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["cold", "warm"]
