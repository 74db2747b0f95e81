"""Labels from the command line: by gold, by hand, on top of earlier ones, and into a reward model's run."""

import json
from unittest.mock import patch

import pytest

from labcore.catalog.llm.models import MODELS
from labcore.cli import main as cli
from labcore.cli.commands import spec_of
from labcore.tasks import labels
from labcore.tasks.preferences import labelled_pairs
from tests.cli.test_main import refused
from tests.llm.runs_on_disk import saved
from tests.llm.tools import TINIER

main = cli.main


@pytest.fixture(autouse=True)
def run():
    with patch.dict(MODELS, {"tiny": TINIER}):
        yield saved("grpo-reviews-aaaa", task="reviews", max_new_tokens=6)


def asked(capsys, *given: str) -> dict:
    capsys.readouterr()
    assert main(["label", "grpo-reviews-aaaa", "--json", *given]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_gold_labels_are_kept_and_added_to_earlier_ones(capsys, tmp_path):
    first = asked(capsys, "--pairs", "5", "--out", str(tmp_path / "mine.jsonl"))
    assert first["labels"] == first["new"] == 5 and first["model"] == "grpo-reviews-aaaa@2"
    assert len(labelled_pairs(first["labelled_pairs"])) == 5
    assert labels.adopt(str(tmp_path / "mine.jsonl")) == first["labelled_pairs"], "the same content is the same upload"
    both = asked(capsys, "--pairs", "4", "--seed", "1", "--add", first["labelled_pairs"])
    assert both["labels"] == 9 and both["new"] == 4
    assert labelled_pairs(both["labelled_pairs"])[:5] == labelled_pairs(first["labelled_pairs"])


def test_a_hand_picks_skips_and_quits(capsys, monkeypatch):
    said = iter(["A", "what", "b", "s", "q"])
    monkeypatch.setattr("builtins.input", lambda words: next(said))
    found = asked(capsys, "--pairs", "6", "--by", "hand")
    assert found["labels"] == 2
    monkeypatch.setattr("builtins.input", lambda words: (_ for _ in ()).throw(EOFError))
    assert main(["label", "grpo-reviews-aaaa", "--by", "hand", "--pairs", "3"]) == 1
    assert "No pair has a label yet" in capsys.readouterr().err


def test_a_run_and_a_fork_take_labels(capsys, tmp_path):
    place = asked(capsys, "--pairs", "5")["labelled_pairs"]
    given = cli.parser().parse_args(["run", "--algorithm", "reward_model", "--task", "reviews", "--labels", place])
    assert spec_of(given).knobs["labelled_pairs"] == place
    assert "has no knob 'labelled_pairs'" in refused(capsys, "run", "--algorithm", "grpo", "--task", "sort", "--labels",
                                                     place)
    assert "There is no file nothing.jsonl" in refused(capsys, "run", "--algorithm", "reward_model", "--task",
                                                       "reviews", "--labels", "nothing.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"question": "q"}\n')
    assert "a pair needs 'prompt', 'chosen' and 'rejected'" in refused(
        capsys, "run", "--algorithm", "reward_model", "--task", "reviews", "--labels", str(tmp_path / "bad.jsonl"))
