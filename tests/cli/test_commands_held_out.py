"""Held-out rows on the command line: a second file, the best checkpoint, and what is wrong with them."""

import json

import pytest

from labcore.catalog.llm.models import MODELS
from labcore.cli.main import main
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from tests.llm.tools import TINIER

RUN = ["run", "--algorithm", "sft", "--model", "tiny", "--steps", "3", "--set", "eval_prompts=2",
       "--set", "max_new_tokens=4", "--json"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Sums to train on, and others to measure on."""
    monkeypatch.setitem(MODELS, "tiny", TINIER)
    for name, some in (("train", range(30)), ("test", range(30, 36))):
        rows = [{"prompt": f"{n}+1=", "answer": str(n + 1)} for n in some]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return tmp_path


def test_a_second_file_is_measured_and_the_best_checkpoint_exported(capsys, files):
    assert main([*RUN, "--prompts", str(files / "train.jsonl"), "--held-out", str(files / "test.jsonl"),
                 "--set", "held_out_every=1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["metrics"]["held_out/rows"] == 6 and told["metrics"]["epoch"] == pytest.approx(24 / 30)
    checkpoint.mark_best(run_folder(told["run"]), 0, "held_out/loss", 1.5)
    assert main(["export", told["run"], "--out", str(files / "best"), "--best"]) == 0
    assert (files / "best" / "checkpoint" / "config.json").exists()
    assert main(["answer", f"{told['run']}@best", "--questions", "50", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert found["columns"][0]["model"] == f"{told['run']}@0"
    assert {each["prompt"] for each in found["questions"]} == {f"{n}+1=" for n in range(30, 36)}


@pytest.mark.parametrize(("arguments", "words"), [
    (["--task", "sort", "--held-out", "{test}"], "--held-out needs a training file"),
    (["--prompts", "{test}", "--held-out", "{test}"], "Every prompt of test.jsonl is in test.jsonl too"),
    (["--prompts", "{test}", "--held-out", "{none}"], "none.jsonl"),
    (["--prompts", "{test}", "--set", "held_out=0.9"], "`held_out` is 0.9, outside its bounds: use a value from 0 to"),
    (["--prompts", "{test}", "--set", "held_out_file=test.jsonl"], "with --held-out FILE")])
def test_what_is_wrong_is_one_sentence(capsys, files, arguments, words):
    places = {"test": files / "test.jsonl", "none": files / "none.jsonl"}
    assert main([*RUN, *(each.format(**places) for each in arguments)]) == 1
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_best_goes_with_a_folder_of_a_run_that_was_measured(capsys, files):
    assert main(["run", "--algorithm", "sft", "--model", "tiny", "--task", "sort", "--steps", "1", "--json"]) == 0
    run_id = json.loads(capsys.readouterr().out)["run"]
    for arguments, words in ((["--out", str(files / "out"), "--best"], "no held-out rows were measured"),
                             (["--out", str(files / "x.zip"), "--capsule", "--best"], "--best works only when")):
        assert main(["export", run_id, *arguments]) == 1
        assert words in capsys.readouterr().err
