"""A watched run can be neither started nor saved here."""

import pytest

from labcore.catalog.kinds import EVERY, KINDS, kind
from labcore.errors import LabError
from labcore.runs.spec.run_spec import RunSpec
from labcore.watch.converting.elsewhere import Elsewhere
from labcore.workers.watched_run import spec_of


def spec(**about: object) -> RunSpec:
    return spec_of({"name": "mine", **about}, "id")


@pytest.mark.parametrize("do", [Elsewhere.start, lambda each: next(Elsewhere(each).run()),
                                lambda each: Elsewhere(each).fork(each), lambda each: Elsewhere(each).save(None)])
def test_a_session_of_a_watched_run_is_refused(do):
    with pytest.raises(LabError, match="use TRL instead"):
        do(spec(tool="TRL"))


def test_the_spec_of_a_watched_run_keeps_the_settings_that_were_sent():
    found = spec(tool="TRL", config={"trainer": "DPOTrainer", "beta": 0.1, "own": "x"})
    assert RunSpec.from_json(found.to_json()) == found and found.row.key == "dpo"
    assert [knob.key for knob in found.declared] == ["beta"] and "TRL" in str(found.goal())
    assert "watch" not in KINDS and kind("watch") is EVERY["watch"] and found.caution() == ""


@pytest.mark.parametrize("tool, config, label, words", [
    ("Stable-Baselines3", {"algorithm": "SAC"}, "SAC", "A run of `Stable-Baselines3`: SAC."),
    ("Stable-Baselines3", {}, "Stable-Baselines3", "A run of `Stable-Baselines3`."),
    ("mine", {"trainer": "/home/me/<b>own.py"}, "bown.py", "A run of `mine`: bown.py."),
    ("", {}, "Other", "A run of another trainer."),
    ("TRL", {"trainer": "GRPOTrainer"}, "GRPO", "A run of `TRL`: GRPO.")])
def test_an_unknown_algorithm_keeps_the_trainer_s_name(tool, config, label, words):
    found = spec(tool=tool, config=config)
    assert found.row.label == label and str(found.goal()) == words
