"""The command `judge`: what it prints, by whom a run may be judged, and what is wrong with an option."""

import json

import pytest

from labcore.cli.main import main
from labcore.runs.files.paths import home
from tests.analysis.test_judge_again import run

assert run  # a fixture


def test_the_command_says_what_was_found_and_shows_where(run, capsys):
    assert main(["judge", run, "--by", "task"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("the completions may exploit the reward.") and lines[1].startswith("From all 6 stored")
    assert lines[3].split()[:3] == ["step", "n", "reward"] and lines[4].split()[:2] == ["1", "8"]
    assert "24×" in lines[-2] and "'<b>a'" in lines[-2]


def test_a_file_of_the_users_judges_and_is_kept_by_its_hash(run, capsys, tmp_path):
    (tmp_path / "mine.py").write_text("def last(completions, **_):\n    return [len(text) for text in completions]\n")
    assert main(["judge", run, "--by", str(tmp_path / "mine.py"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["name"] == "last" and found["steps"][-1]["score"]["mean"] == 4
    assert [path.name for path in (home() / "rewards").rglob("*.py")] == ["mine.py"]


@pytest.mark.parametrize(("options", "fault"), [
    (["--by", "exakt"], "did you mean 'exact'"), (["--by", "none.py"], "none.py"),
    (["--by", "regex", "--set", "pattern"], "write KNOB=VALUE"), (["--by", "exact", "--most", "0"], "from 1"),
    (["--by", "length", "--set", "length_low=few"], "whole number"),
    (["--by", "exact", "--set", "beta=1"], "KNOB=VALUE")])
def test_an_option_that_cannot_be_used_is_one_sentence(run, capsys, options, fault):
    assert main(["judge", run, *options]) == 1
    said = capsys.readouterr().err
    assert fault in said and said.count("\n") == 1


def test_a_run_that_is_not_there_is_no_path(capsys):
    assert main(["judge", "../../etc", "--by", "exact"]) == 1
    assert "There is no run" in capsys.readouterr().err
