"""The table of behaviour: it repeats itself, and two tables are told apart by their lines."""

import itertools
import json
import os
from types import SimpleNamespace

import pytest

from benchmarks import behaviour
from benchmarks.behaviour import CASES


@pytest.mark.long  # starts Python and the lab anew for each table
def test_a_case_gives_the_same_line_again(tmp_path):
    tables = [tmp_path / name for name in ("before.txt", "after.txt")]
    for path in tables:
        assert behaviour.main(["--only", "maze/q_learning/own$", "--out", str(path), "--keep", str(tmp_path)]) == 0
    assert len(tables[0].read_text().splitlines()) == 1
    assert behaviour.main(["--compare", *map(str, tables)]) == 0
    told = json.loads((tmp_path / "maze-q_learning-own.json").read_text())
    assert len(told["steps"]) == 20 and {"td_error", "env_steps"} <= set(told["steps"][0])
    assert not {"seconds", "memory", "env_steps_per_second"} & set(told["steps"][-1])
    assert "samples/step-000020.json" in told["seen"]


class BusyLab(behaviour.Lab):
    """A lab whose run is paused at step 1 only after `polls` looks at it, or has ended by then."""

    def __init__(self, polls: int, then: str):
        self.polls, self.then, self.asked, self.step = polls, then, [], 1
        self.desk = self.ask
        self.worker = SimpleNamespace(begin=lambda *_: 0, run_begun=lambda _: "a", finish=self.finish)

    def ask(self, command: str, run: str) -> None:
        self.asked.append(command)
        self.step += command == "step"

    def state(self, run: str) -> dict[str, object]:
        self.polls -= 1
        return {"state": self.then if self.polls < 0 else "running", "step": self.step}

    def finish(self) -> None:
        assert self.then != "paused", "a paused run does not end by itself"


def test_a_run_that_pauses_late_is_held_and_one_that_ended_before_is_tried_again(monkeypatch):
    clock = itertools.count(0, 50)
    monkeypatch.setattr(behaviour, "time", SimpleNamespace(sleep=lambda _: None, monotonic=lambda: next(clock)))
    late, early = BusyLab(10, "paused"), BusyLab(2, "finished")
    assert behaviour.hold(late, ["run"], 3) == "a" and late.asked == ["pause", "step", "step"]
    with pytest.raises(behaviour.Failed, match="could not be paused"):
        behaviour.hold(early, ["run"], 3)
    assert early.asked == ["pause"] * behaviour.TRIES


def test_the_run_that_a_command_makes_is_read_from_its_log_and_a_refusal_is_said(tmp_path):
    (tmp_path / "labcore").mkdir()
    (tmp_path / "labcore" / "__main__.py").write_text(
        "import sys; sys.stderr.write(sys.argv[1]); sys.stderr.flush(); sys.exit('run' not in sys.argv[1])")
    shell = behaviour.Shell(tmp_path, {**os.environ, "PYTHONUTF8": "1"}, tmp_path / "log")
    for run in ("a", "b"):  # a log with letters that are two bytes long
        assert shell.run_begun(shell.begin(f"run {run}\n·······\n")) == run and shell.finish() == ""
    with pytest.raises(behaviour.Failed, match="no such task"):
        shell.run_begun(shell.begin("no such task"))
    shell.end()


def test_lines_that_differ_are_named(tmp_path, capsys):
    for name, text in (("before.txt", "a  1\nb  2\nc  3\n"), ("after.txt", "a  1\nb  4\n")):
        (tmp_path / name).write_text(text)
    assert behaviour.main(["--compare", str(tmp_path / "before.txt"), str(tmp_path / "after.txt")]) == 1
    assert capsys.readouterr().out.splitlines() == ["- b  2", "- c  3", "+ b  4"]


def test_what_a_case_starts_from_is_run_first():
    names = [case["name"] for case in behaviour.chosen("^replay/llm/fork/grpo-to-ppo$|^llm/sft/gpt2$")]
    assert names == ["llm/sft/sort", "llm/grpo/sort", "llm/sft/gpt2", "llm/fork/grpo-to-ppo",
                     "replay/llm/fork/grpo-to-ppo"]


def test_every_algorithm_is_run_with_every_knob_given():
    runs = [case for case in CASES["cases"] if case["do"] == "run"]
    for kind, rows in CASES["defaults"].items():
        assert {case["algorithm"] for case in runs if case["kind"] == kind} == set(rows)
    for case in runs:
        assert set(CASES["defaults"][case["kind"]][case["algorithm"]]) <= set(behaviour._knobs(case))
