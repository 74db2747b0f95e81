"""Models that answer, and one batch with many eyes, from the command line."""

import json
from unittest.mock import patch

import pytest

from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.llm.models import MODELS
from labcore.cli.main import main
from labcore.llm.probes import one_batch
from tests.cli.test_main import refused
from tests.llm.runs_on_disk import saved
from tests.llm.tools import TINIER, Letters


@pytest.fixture(autouse=True)
def run():
    with patch.dict(MODELS, {"tiny": TINIER}):
        yield saved("grpo-sort-aaaa")


def test_answers_as_a_table_and_as_json(capsys, run):
    given = ("answer", run, f"base:{run}", "--prompt", "dbca=", "--answer", "abcd", "--count", "2")
    assert main(list(given)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and all("wrong" in line for line in lines[1:])
    assert sum(line.startswith(f"base:{run} ") and " +0.00 " in line for line in lines) == 2
    assert main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [column["model"] for column in found["columns"]] == [f"{run}@2", f"base:{run}"]
    assert repr(found["columns"][0]["answers"][0]["text"]) in lines[1]


def test_questions_of_the_task(capsys, run):
    assert main(["answer", run, "--questions", "8"]) == 0
    assert "0 of 8  0.000 [0.000, 0.369]" in capsys.readouterr().out


def test_a_batch(capsys, run):
    given = ("batch", run, "--prompts", "4", "--group-size", "4", "--eval-prompts", "16")
    rows = tuple(ALGORITHMS[key] for key in ("grpo", "reinforce", "rloo", "ppo"))
    with (patch("labcore.llm.session.make_task") as task, patch.object(one_batch, "CRITIC_BATCHES", 1),
          patch.object(one_batch, "ONLINE", rows)):
        task.side_effect = lambda *_: Letters()
        assert main([*given, "--updates", "1"]) == 0
        said = capsys.readouterr().out
        assert main([*given, "--algorithms", "rloo,grpo", "--json"]) == 0
    assert f"{run}@2: 4 prompts × 4" in said and "after 1 update by grpo" in said
    assert all(f"{row.key} {kind}" in said for row in rows for kind in ("equal", "own"))
    found = json.loads(capsys.readouterr().out)
    assert found["updates"] == 0 and [row["key"] for row in found["algorithms"]] == ["rloo", "grpo"]


@pytest.mark.parametrize("given, words", [
    (("answer", "nobody", "--prompt", "a="), "The run nobody has no model here"),
    (("answer", "grpo-sort-aaaa", "--prompt", "é="), "does not know 'é'"),
    (("answer", "grpo-sort-aaaa", "--questions", "3", "--answer", "x"), "--answer needs --prompt"),
    (("answer", "grpo-sort-aaaa", "--prompt", "a", "--temperature", "7"), "`temperature` is 7, outside its bounds"),
    (("batch", "grpo-sort-aaaa", "--stepper", "sft"), "There is no online algorithm 'sft'"),
    (("batch", "../x"), "names no model")])
def test_what_cannot_be_is_one_sentence(capsys, given, words):
    assert words in refused(capsys, *given)
