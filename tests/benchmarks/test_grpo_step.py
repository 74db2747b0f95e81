"""The benchmark's arithmetic, and what it says without its peers. Times are never asserted."""

from __future__ import annotations

import pytest

from benchmarks import grpo_step
from benchmarks.contenders import Times


def times(*wall: float, peak_rss: float = 100.0) -> Times:
    return Times(list(wall), [seconds / 2 for seconds in wall], peak_rss)


def test_ratios_are_made_between_the_medians_of_a_round():
    first, second = grpo_step.rows({
        "trl-fp32": [times(0.6, 0.9, 0.6), times(1.2, 1.2, 1.3), times(0.8, 0.8, 0.8, peak_rss=300.0)],
        "lab-fp32": [times(0.3, 0.2, 0.3), times(0.4, 0.4, 9.0), times(0.2, 0.2, 0.2)]})
    assert first.ratios == [1, 1, 1]
    assert second.ratios == pytest.approx([2, 3, 4])
    assert second.ratio == pytest.approx(3)
    assert (second.seconds, second.fastest, second.slowest) == (0.3, 0.2, 9.0)
    assert second.cpu_ratios == pytest.approx([2, 3, 4])
    assert (first.cpu_seconds, first.peak_rss, second.peak_rss) == (0.4, 300, 100)
    printed = grpo_step.table([first, second])
    assert "300 [200..9000]" in printed
    assert "3.00 (cpu 3.00) by round 2.00, 3.00, 4.00" in printed


def test_missing_peers_are_named_with_the_remedy(monkeypatch, capsys):
    monkeypatch.setattr(grpo_step, "find_spec", lambda name: None)
    assert grpo_step.main(["--rounds", "1"]) == 1
    assert "pip install -r requirements-bench.txt" in capsys.readouterr().err
    grpo_step.check_installed(["lab-fp32"])  # ours alone needs nothing
