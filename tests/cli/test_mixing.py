"""Mixes on the command line: saved, listed, run by their names, and named in passing."""

import json

from labcore.cli.commands import spec_of
from labcore.cli.main import main, parser
from labcore.runs import mixes
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from tests.cli.test_main import refused
from tests.words import says


def test_a_mix_is_saved_listed_run_by_its_name_renamed_and_deleted(capsys):
    assert main(["mixes"]) == 0 and "No mixes yet" in capsys.readouterr().out
    assert main(["mixes", "--save", "my own", "--algorithm", "grpo", "--set", "aggregation=token_mean", "--set",
                 "advantage=group_mean"]) == 0
    assert "--algorithm 'my own'" in capsys.readouterr().out
    assert main(["mixes"]) == 0
    said = capsys.readouterr().out
    assert "my own  from grpo, nearest: grpo" in said and "group_standardised → group_mean" in said
    assert "beware: k3 in the loss" in said
    assert main(["mixes", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["differs"]["aggregation"] == ["sequence_mean_token_mean", "token_mean"]

    spec = spec_of(parser().parse_args(["run", "--algorithm", "My Own", "--set", "beta=0.3"]))
    assert (spec.mix, spec.algorithm, spec.knobs["aggregation"], spec.knobs["beta"]) == (
        "my own", "grpo", "token_mean", 0.3)
    run_id = Store().create(spec)
    assert main(["mixes", "--save", "again", "--run", run_id]) == 0
    assert mixes.find("again").knobs == {"aggregation": "token_mean", "advantage": "group_mean", "beta": 0.3}
    assert main(["mixes", "--rename", "again", "strong"]) == 0 and main(["mixes", "--delete", "my own"]) == 0
    assert [mix.name for mix in mixes.saved()[0]] == ["strong"]


def test_a_mix_is_named_in_passing():
    spec = spec_of(parser().parse_args(["sweep", "--algorithm", "reinforce", "--mix", "mine", "--set",
                                        "surrogate=soft_gate", "--set", "ratio=token", "--sweep", "beta=0,1"]))
    assert (spec.mix, spec.row.label, spec.knobs["updates_per_batch"]) == ("mine", "mine", 1)


def test_what_cannot_be(capsys):
    assert says(refused(capsys, "run", "--algorithm", "grop"), "'grop'", "did you mean 'grpo'")
    assert "need --save NAME" in refused(capsys, "mixes", "--algorithm", "grpo")
    assert "The choices are missing" in refused(capsys, "mixes", "--save", "mine")
    assert "needs a ratio" in refused(capsys, "mixes", "--save", "mine", "--algorithm", "grpo", "--set", "ratio=none")
    assert "has no choices to mix" in refused(capsys, "run", "--algorithm", "sft", "--mix", "mine")
    cart = Store().create(make(kind="cartpole", algorithm_key="ppo", task_key="CartPole-v1"))
    assert "give a run of a language model" in refused(capsys, "mixes", "--save", "mine", "--run", cart)
    assert mixes.saved() == ([], []), "its knobs are not those of the language models' PPO"
