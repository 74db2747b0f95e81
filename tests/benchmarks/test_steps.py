"""The benchmarks' arithmetic, and what they say without their peers. Times are never asserted."""

import multiprocessing

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from benchmarks import grpo_step, ppo_step, turns
from benchmarks.turns import Times
from labcore.errors import LabError


def times(*wall: float, peak: float = 100.0) -> Times:
    return Times(list(wall), [seconds / 2 for seconds in wall], peak)


def test_ratios_are_made_between_the_medians_of_a_round():
    first, second = turns.rows({
        "trl-fp32": [times(0.6, 0.9, 0.6), times(1.2, 1.2, 1.3), times(0.8, 0.8, 0.8, peak=300.0)],
        "lab-fp32": [times(0.3, 0.2, 0.3), times(0.4, 0.4, 9.0), times(0.2, 0.2, 0.2)]})
    assert first.ratios == [1, 1, 1]
    assert second.ratios == pytest.approx([2, 3, 4])
    assert second.ratio == pytest.approx(3)
    assert (second.seconds, second.fastest, second.slowest) == (0.3, 0.2, 9.0)
    assert second.cpu_ratios == pytest.approx([2, 3, 4])
    assert (first.cpu_seconds, first.peak, second.peak) == (0.4, 300, 100)
    printed = turns.table([first, second])
    assert "300 [200..9000]" in printed
    assert "3.00 (cpu 3.00) by round 2.00, 3.00, 4.00" in printed


@pytest.mark.parametrize("benchmark, remedy", [
    (grpo_step, "pip install -r requirements-bench.txt"), (ppo_step, "-r requirements-bench-ppo.txt")])
def test_missing_peers_are_named_with_the_remedy(benchmark, remedy, monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "find_spec", lambda name: None)
    monkeypatch.setattr(turns, "measure", lambda *_: pytest.fail("there is no peer to measure"))
    assert benchmark.main(["--rounds", "1"]) == 1
    assert remedy in capsys.readouterr().err


@pytest.fixture(scope="module")
def forked():
    """Processes that find torch and the lab in memory: six that import them on their own take half a minute."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["labcore.llm.session"])
    return context


@pytest.mark.long
@pytest.mark.parametrize("benchmark", [grpo_step, ppo_step])
def test_ours_alone_takes_its_turns_and_needs_nothing(benchmark, monkeypatch, capsys, forked):
    monkeypatch.setattr(benchmark, "check_installed", lambda: pytest.fail("ours alone needs nothing"))
    monkeypatch.setattr(turns, "_spawn", lambda: forked)
    asked = ["--contenders", "lab-fp32", "lab-bf16", "--sizes", "0.1", "--rounds", "1", "--steps", "1"]
    monkeypatch.setattr(turns, "WARM_UP", 1)
    assert benchmark.main(asked) == 0
    printed = capsys.readouterr().out
    assert "lab-fp32" in printed and "times faster than lab-fp32" in printed


def test_the_peer_of_ppo_is_looked_for_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(ppo_step, "find_spec", lambda name: name)
    monkeypatch.setattr(ppo_step, "TRL", tmp_path)
    with pytest.raises(LabError, match=r"build/trl-1\.12"):
        ppo_step.check_installed()
    (tmp_path / "trl").mkdir()
    ppo_step.check_installed()


def test_weights_after_sft_are_other_ones_that_both_sides_can_load(tmp_path):
    for steps, folder in ((0, "random"), (2, "taught")):
        grpo_step.save_taught(steps, "0.1", tmp_path / folder)
    random, taught = (load_file(tmp_path / folder / "model.safetensors") for folder in ("random", "taught"))
    assert random.keys() == taught.keys() and any(not torch.equal(random[name], taught[name]) for name in random)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "taught").num_parameters() > 50_000
