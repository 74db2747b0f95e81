"""Before a run learns from long texts it is said which are cut and what a step computes."""

from __future__ import annotations

import json

from labcore.cli.main import main
from labcore.runs.spec.run_spec import make
from tests.words import says


def pairs(tmp_path, length: int, lines: int = 4) -> str:
    path = tmp_path / f"pairs-{length}.jsonl"
    path.write_text("".join(json.dumps({"prompt": "a=", "chosen": "ab" * (length // 2), "rejected": "b"}) + "\n"
                            for _ in range(lines)))
    return str(path)


def said(tmp_path, length: int, algorithm: str = "dpo", **knobs) -> str:
    return make(algorithm_key=algorithm, task_key="preferences", data=pairs(tmp_path, length), knobs=knobs).caution()


def test_texts_that_are_cut_and_the_tokens_of_a_step_are_said(tmp_path):
    assert says(said(tmp_path, 50_000), "4 of 8", "2,048", "tiny", "50,003", "beginnings", "32,768 tokens",
                "lower pairs_per_step", "shorten the texts")
    assert said(tmp_path, 50_000, pairs_per_step=4).endswith("their beginnings only.")
    assert "lower sequences_per_step" in said(tmp_path, 50_000, "sft", sequences_per_step=32)
    assert said(tmp_path, 200) == ""
    assert said(tmp_path, 2045, pairs_per_step=4) == "" and "4 of 8" in said(tmp_path, 2046, pairs_per_step=4)


def test_the_command_line_says_it_before_the_start(tmp_path, capsys, monkeypatch):
    started = []
    monkeypatch.setattr("labcore.cli.commands.train", lambda *given: started.append(capsys.readouterr().err) or 0)
    assert main(["run", "--algorithm", "dpo", "--preferences", pairs(tmp_path, 50_000)]) == 0
    assert "labcore: 4 of 8 texts are longer" in started[0]


def test_a_file_that_cannot_be_read_is_said_where_it_is_checked(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    assert make(algorithm_key="dpo", task_key="preferences", data=str(tmp_path / "empty.jsonl")).caution() == ""
    assert make(algorithm_key="dpo", task_key="sort").caution() == ""
