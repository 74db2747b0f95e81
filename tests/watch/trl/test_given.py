"""The texts that a trainer learns preferences from are those of its data, with the numbers of TRL's own loss."""

import time

import pytest
import torch

from labcore.watch.trl import LabCallback
from tests.golden.trl_callback import PAIRS
from tests.watch.trl import fake
from tests.watch.trl.fake import FakeWatch

NAMES = ("DPOTrainer", "KTOTrainer")
TEXTS = {row["prompt"]: (row["chosen"], row["rejected"]) for row in PAIRS}


@pytest.fixture(autouse=True)
def lab(monkeypatch):
    fake.listened(monkeypatch)
    monkeypatch.setattr("labcore.watch.trl.given.REST", 0.0)


def sent(trainer: fake.FakeTrainer) -> dict[int, dict]:
    trainer.play()
    return {args[0]: given for args, given in FakeWatch.made[-1].of("rollouts")}


def logged(trainer: fake.FakeTrainer, step: int) -> dict[str, float]:
    return next(event["logs"] for event in trainer.events if event["event"] == "on_log" and event["step"] == step)


def plain(texts: list[str]) -> list[str]:
    """The completions without the end that TRL adds, which the tokenizer of the stand-in does not leave out."""
    return [each.removesuffix(fake.tokenizer().eos_token) for each in texts]


def mean(values) -> float:
    return sum(values) / len(values)


@pytest.mark.filterwarnings("error")
def test_pairs_are_those_of_the_data_with_the_rewards_and_log_probs_that_trl_logs():
    trainer = fake.DPOTrainer(LabCallback())
    found = sent(trainer)
    assert [*found] == [1, 2, 3, 4]
    for step, given in found.items():
        logs, completions = logged(trainer, step), plain(given["completions"])
        assert given["pairs"] and len(given["prompts"]) == 2
        for place, prompt in enumerate(given["prompts"]):
            assert tuple(completions[2 * place:2 * place + 2]) == TEXTS[prompt]
        assert plain(["".join(each) for each in given["tokens"]]) == completions
        for first, side in enumerate(("chosen", "rejected")):
            assert mean(given["rewards"]["reward"][first::2]) == pytest.approx(logs[f"rewards/{side}"], abs=1e-4)
            assert mean([*map(sum, given["logprobs"][first::2])]) == pytest.approx(logs[f"logps/{side}"], abs=1e-3)
        assert mean([each for row in given["entropy"] for each in row]) == pytest.approx(logs["entropy"], abs=1e-3)
    assert found[1]["logprobs"] == found[1]["ref_logprobs"] and found[2]["logprobs"] != found[2]["ref_logprobs"]


@pytest.mark.filterwarnings("error")
def test_labelled_completions_have_their_label_and_their_implicit_reward():
    trainer = fake.KTOTrainer(LabCallback())
    for step, given in sent(trainer).items():
        logs = logged(trainer, step)
        assert not given["pairs"] and given["group"] == 1
        assert plain(given["completions"]) == [TEXTS[prompt][0] for prompt in given["prompts"]]
        for label, side in ((1.0, "chosen"), (0.0, "rejected")):
            rewards = [reward for reward, desirable in zip(given["rewards"]["reward"], given["rewards"]["desirable"],
                                                           strict=True) if desirable == label]
            assert mean(rewards) == pytest.approx(logs[f"rewards/{side}"], abs=1e-4)
        assert given["rewards"]["implicit reward"] == given["rewards"]["reward"]


@pytest.mark.parametrize("name, names", [("DPOTrainer", ("ref_chosen_logps", "ref_rejected_logps")),
                                         ("KTOTrainer", ("ref_logps",))])
def test_sums_of_the_reference_model_that_were_computed_before_give_the_same_rewards(name, names):
    whole = sent(getattr(fake, name)(LabCallback()))
    trainer = getattr(fake, name)(LabCallback())
    for event in trainer.events:
        if event["event"] == "loss":
            reference = next(each for each in event["passes"] if each["of"] == "ref_model"
                             and each["ids"] == "input_ids")
            event["passes"].remove(reference)
            event["inputs"] |= dict(zip(names, [chunk.tolist() for chunk in torch.tensor(reference["log_probs"]).sum(
                1).chunk(len(names))], strict=True))
    for step, given in sent(trainer).items():
        assert given["rewards"]["reward"] == pytest.approx(whole[step]["rewards"]["reward"], abs=1e-4)
        assert "ref_logprobs" not in given


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_skipped_as_asked_and_where_they_would_cost_too_much(name, monkeypatch):
    assert [*sent(getattr(fake, name)(LabCallback(every=2)))] == [1, 3]
    found = sent(getattr(fake, name)(LabCallback(completions=2)))
    assert {len(given["completions"]) for given in found.values()} == {2}
    monkeypatch.setattr("labcore.watch.trl.given.REST", 1e9)
    ticks = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    assert [*sent(getattr(fake, name)(LabCallback()))] == [1, 4], "the first step, and at the end the last one"


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_of_another_form_sends_texts_alone_and_disturbs_nothing(name):
    """As a later version of TRL may return it, or a kernel that computes the loss without a pass of the model."""
    trainer = getattr(fake, name)(LabCallback())
    for event in trainer.events:
        if event["event"] == "loss":
            event["passes"] = []
    for given in sent(trainer).values():
        assert given["completions"] and "reward" not in given["rewards"] and "logprobs" not in given
    broken = getattr(fake, name)(LabCallback())
    for event in broken.events:
        event.get("inputs", {}).pop("completion_mask", None)
    with pytest.warns(UserWarning, match="the training continues"):
        assert not sent(broken)
    assert not broken.model._forward_hooks and "compute_loss" not in vars(broken)


def test_a_loss_that_fails_leaves_no_hook():
    trainer = fake.DPOTrainer(LabCallback())
    next(event for event in trainer.events if event["event"] == "loss")["passes"] = [{}]
    with pytest.raises(KeyError):
        trainer.play()
    assert not trainer.model._forward_hooks and not trainer.ref_model._forward_hooks
