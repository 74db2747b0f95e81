"""Steps of single methods beside TRL's: our side of each, without the peer. Times are never asserted."""

import pytest

from benchmarks import method_steps, turns
from labcore.catalog.llm.models import MODELS
from tests.every import now


class Twice:
    """A turn of two steps, in this process."""

    def __init__(self):
        self.steps = 0

    def ready(self) -> None:
        pass

    def step_done(self) -> None:
        self.steps += 1
        if self.steps == 2:
            raise SystemExit


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(turns.SIZES, "0.8", MODELS["tiny"])
        turns.save_weights("0.8", folder)
    return folder


@pytest.mark.parametrize("method", now(method_steps.BATCHES, "rloo", "sft"))
def test_ours_takes_its_steps_and_needs_nothing(method, folder):
    turn = Twice()
    with pytest.raises(SystemExit):
        method_steps.lab(method, folder, "fp32", 1, turn)
    assert turn.steps == 2 and method in method_steps.TRAINERS


def test_every_pair_has_a_right_and_a_wrong_sum():
    for row in method_steps.pairs()[:50]:
        assert eval(row["prompt"].rstrip("=")) == int(row["chosen"]) != int(row["rejected"])


def test_each_method_is_measured_by_itself_and_a_missing_peer_is_named(monkeypatch, capsys):
    monkeypatch.setattr(turns, "measure", lambda *_: {"trl-fp32": [turns.Times([0.2], [0.2], 100.0)],
                                                      "lab-fp32": [turns.Times([0.1], [0.1], 100.0)]})
    monkeypatch.setattr(method_steps, "check_installed", lambda: None)
    assert method_steps.main(["--methods", "dpo", "sft", "--sizes", "0.8"]) == 0
    printed = capsys.readouterr().out
    assert "dpo: 0.8 M" in printed and "sft: 0.8 M" in printed and "rloo" not in printed and "2.00" in printed
