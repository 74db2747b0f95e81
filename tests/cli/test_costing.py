"""`cost` as a user meets it."""

import json
import os
import sys

import pytest

from labcore import machine
from labcore.cli import costing
from labcore.cli.main import main
from labcore.llm.sizing import cost, step_time
from labcore.runs import jobs
from labcore.runs.spec.run_spec import make
from tests.cli.test_main import refused
from tests.words import says


def test_what_is_counted_then_what_is_measured(monkeypatch, capsys):
    assert main(["cost", "ppo", "simpo", "--model", "tiny", "--counted"]) == 0
    head, ppo, simpo, *notes = capsys.readouterr().out.splitlines()
    assert " ".join(head.split()) == ("Algorithm Models held Batch Weights Gradients + optimizer Activations Step "
                                      "× PPO")
    assert "policy, critic, reference (frozen)" in ppo and ppo.split()[-3:] == ["–", "–", "–"]
    assert "64 pairs" in simpo and "No algorithm holds" not in simpo and notes
    told = {line.split("  ")[0]: line.split() for line in notes if line}
    assert told["Memory, estimated"][2:] == ["PPO", "SimPO"] and told["Critic"][-1] == told["Reference"][-1] == "–"
    assert [line.partition(" it needs")[0] for line in notes[-2:]] == ["PPO: It fits:", "SimPO: It fits:"]

    def quick(spec):
        seconds = 0.25 if spec.algorithm == "ppo" else 0.1
        jobs._keep(jobs.put(cost.cost_asked(spec)), {"activations": 2_500_000, "seconds": [seconds], "measured": 1.0})

    monkeypatch.setattr(costing, "_measure", quick)
    assert main(["cost", "ppo", "simpo", "--model", "tiny"]) == 0
    told = capsys.readouterr()
    assert told.err.split("\n")[:2] == ["measuring PPO …", "measuring SimPO …"]
    assert told.out.splitlines()[2].split()[-5:] == ["2.5", "MB", "100", "ms", "0.40"]
    assert main(["cost", "simpo", "ppo", "--model", "tiny", "--json"]) == 0
    told = capsys.readouterr()
    assert not told.err, "it is known by now"
    [simpo, ppo] = json.loads(told.out)["rows"]
    assert simpo["times"] == 0.4 and [each["name"] for each in simpo["models"]] == ["policy"]
    assert ppo["weights"] == 4 * sum(each["parameters"] for each in ppo["models"])
    assert ppo["memory"]["fits"] and ppo["memory"]["peak"] > sum(
        part["size"] for part in ppo["memory"]["parts"] if part["when"] == "at all times")


@pytest.mark.skipif(sys.platform != "linux", reason="the process has to be a fork of this one")
def test_a_measurement_that_is_killed_is_said(monkeypatch):
    monkeypatch.setattr(jobs, "perform", lambda job: os._exit(9))
    spec = make(algorithm_key="grpo", task_key="sort")
    costing._measure(spec)
    [row] = cost.rows([spec], [[]])
    assert "ended without a message (exit code 9)" in row.fault and row.seconds is None


def test_a_knob_that_none_has_is_said(capsys):
    assert refused(capsys, "cost", "sft", "--set", "gae_lambda=1").startswith("labcore: None of sft has a knob")


def test_what_does_not_fit_is_said_with_what_to_change(monkeypatch, capsys):
    monkeypatch.setattr(machine, "free_memory", lambda device: 40_000_000)
    assert main(["cost", "grpo", "--model", "tiny", "--counted"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("GRPO: It may not fit: it needs about ") and "40.0 MB are free now, and the" in last
    assert says(last, "make it fit", "prompts_per_step to 16", "group_size to 4", "max_new_tokens to 4")


def test_a_measurement_of_the_machine_says_so(monkeypatch, capsys):
    """Once: what is known by then is only printed."""
    size = {"held": [], "longest": 4, "layers": 1}
    spec = make(algorithm_key="grpo", task_key="sort", model="org/model", absent=True)
    measured = iter([{"sizes": [size, size]}, {"rows": [1]}] * 2)
    monkeypatch.setattr(costing, "Sizes", lambda **found: found)
    monkeypatch.setattr(costing, "computed", lambda asked: next(measured))
    monkeypatch.setattr(step_time, "asks", lambda _: True)
    monkeypatch.setattr(step_time, "speed_asked", lambda *_: {"job": "speed"})
    monkeypatch.setattr(step_time, "need", lambda *_: step_time.Need(90.0, 10**9, True))
    monkeypatch.setattr(step_time, "lighter", lambda *_: [])
    assert "GRPO: 1 min 30 s" in costing.times([spec])
    assert capsys.readouterr().err == "measuring the speed of this machine for GRPO …\n"
    jobs._keep(jobs.put({"job": "speed"}), {})
    costing.times([spec])
    assert capsys.readouterr().err == ""
