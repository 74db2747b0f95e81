"""`data`, and `--data` with a dataset of the hub, as a user meets them."""

import json

import pytest

from labcore.cli import data_files
from labcore.cli.main import main
from labcore.errors import LabError
from labcore.runs.files import uploads
from labcore.runs.files.datasets import Fetched
from tests.cli.test_main import refused
from tests.words import says

ROWS = [{"q": f"{number}+1=", "a": str(number + 1), "level": "easy"} for number in range(6)]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


def test_the_data_as_a_model_reads_it(file, capsys):
    assert main(["data", file, "--map", "prompt=q,answer=a", "--set", "template=chatml"]) == 0
    out = capsys.readouterr().out
    assert "  6 rows in the layout “fields of your own”." in out
    assert says(out, "Other fields", "reward functions", "level")
    assert "ChatML, on which it may not have been trained" in out and "The verifier that fits is numeric" in out
    first = out.partition("Line 1: ")[2].splitlines()
    assert says(first[0], "q", "prompt", "a", "answer")
    assert first[1:4] == ["  prompt, 45 tokens: <|im_start|>user\\n0+1=<eos>\\n<|im_start|>assistant\\n",
                          "  answer, 3 tokens: 1<eos>\\n", "  level: easy"]
    assert out.count("\nLine ") == 5


def test_as_json(file, capsys):
    assert main(["data", file, "--map", "prompt=q", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == 6 and found["shown"][0]["prompt"][0][2] == "text"


def test_pairs_are_known_by_their_fields(tmp_path, capsys):
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"prompt": "a", "chosen": "b", "rejected": "c"}) + "\n")
    assert main(["data", str(path)]) == 0
    out = capsys.readouterr().out
    assert "TRL, preferences" in out and "  rejected, 2 tokens: c<eos>" in out


def test_columns_without_a_meaning_are_listed(file, capsys):
    assert "(it has 'q', 'a', 'level')" in refused(capsys, "data", file)


def test_a_dataset_of_the_hub_is_data_too(monkeypatch, capsys):
    path = uploads.keep("sums-train.jsonl", json.dumps({"prompt": "1+1=", "answer": "2"}).encode())
    asked = []
    monkeypatch.setattr(data_files.datasets, "fetch",
                        lambda dataset: asked.append(dataset) or Fetched(path, "These are the first 1 rows."))
    assert main(["data", "org/sums:main/train"]) == 0
    told = capsys.readouterr()
    assert says(told.out, "Line 1", "prompt, answer") and says(told.err, "labcore", "first 1 rows")
    small = [word for knob in ("sft_steps=0", "prompts_per_step=1", "group_size=2", "max_new_tokens=2")
             for word in ("--set", knob)]
    assert main(["run", "--algorithm", "grpo", "--data", "org/sums:main/train", "--steps", "1", "--json", *small]) == 0
    assert {(each.repo, each.config, each.split) for each in asked} == {("org/sums", "main", "train")}


def test_a_dataset_that_cannot_be_fetched_is_one_sentence(monkeypatch, capsys):
    def no(dataset):
        raise LabError("The hub has no dataset 'org/none' that is open to you: check the spelling.")
    monkeypatch.setattr(data_files.datasets, "fetch", no)
    assert says(refused(capsys, "run", "--algorithm", "grpo", "--data", "org/none"), "'org/none'",
                "check the spelling")
    assert "There is no file" in refused(capsys, "run", "--algorithm", "grpo", "--data", "org/none.jsonl")
