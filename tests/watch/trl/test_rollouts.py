"""The completions that are sent are those that TRL logged, with the log-probs that its own passes computed."""

import math

import pytest
import torch

from labcore.watch.trl import LabCallback
from labcore.watch.trl.rollouts import Wrapped, numbers, sent_of, with_total
from tests.watch.trl import fake
from tests.watch.trl.fake import FakeWatch


@pytest.fixture(autouse=True)
def lab(monkeypatch):
    fake.listened(monkeypatch)


def sent(trainer: fake.FakeTrainer) -> list[tuple[int, dict]]:
    trainer.play()
    return [(args[0], given) for args, given in FakeWatch.made[-1].of("rollouts")]


def generations(trainer: fake.FakeTrainer) -> list[dict]:
    return [event for event in trainer.events if event["event"] == "generate" and event["mode"] == "train"]


@pytest.mark.parametrize("name, steps", [("GRPOTrainer", [4]), ("RLOOTrainer", [1, 2, 3, 4])])
def test_each_generation_is_sent_at_the_last_step_that_used_it(name, steps):
    """GRPO's recording has 4 micro-batches per generation, 2 per step, and goes over each generation twice."""
    trainer = getattr(fake, name)(LabCallback())
    found = sent(trainer)
    assert [step for step, _ in found] == steps
    for (_, given), event in zip(found, generations(trainer), strict=True):
        logs = event["logs"]
        assert given["completions"] == logs["completion"] and given["prompts"] == logs["prompt"]
        assert given["advantages"] == pytest.approx(logs["advantages"], abs=1e-5) and given["group"] == 2
        assert given["rewards"].keys() - {"reward"} == logs["rewards"].keys()
        for function, found in logs["rewards"].items():
            assert given["rewards"][function] == [None if each == "NaN" else pytest.approx(each, abs=1e-5)
                                                  for each in found]
        assert ["".join(tokens) for tokens in given["tokens"]] == [
            fake.tokenizer().decode([each for each, counts in zip(*row, strict=True) if counts])
            for row in zip(event["output"]["completion_ids"], event["output"]["completion_mask"], strict=True)]


def test_a_completion_that_no_function_scored_has_no_number():
    [(_, given)] = sent(fake.GRPOTrainer(LabCallback()))
    assert None in given["rewards"]["scored_by_half"] and None not in given["rewards"]["rising"]


def test_log_probs_are_those_of_the_last_pass_over_each_completion():
    """TRL shuffles a generation and cuts it into micro-batches: each row is found again by its ids."""
    trainer = fake.GRPOTrainer(LabCallback())
    [(_, given)] = sent(trainer)
    [event] = generations(trainer)
    ids = torch.cat([torch.tensor(event["output"][key]) for key in ("prompt_ids", "completion_ids")], 1).tolist()
    passes = [each for each in trainer.events if each["event"] == "score" and each["training"]]
    assert len(passes) == 8 and [each["ids"] for each in passes[:4]] == [each["ids"] for each in passes[4:]]
    assert passes[0]["ids"] != ids[:2], "the recording would not notice rows in the wrong place"
    for column, part in (("logprobs", 0), ("entropy", 1)):
        last = {tuple(row): values for each in passes for row, values in zip(
            each["ids"], each["returned"][part], strict=True)}
        for row, values in zip(ids, given[column], strict=True):
            assert values == pytest.approx(last[tuple(row)], abs=1e-5)
    assert given["old_logprobs"] == [pytest.approx(row, abs=1e-5) for row in event["output"]["old_per_token_logps"]]
    first = {tuple(row): values for each in passes[:2] for row, values in zip(
        each["ids"], each["returned"][0], strict=True)}
    for row, values in zip(ids, given["old_logprobs"], strict=True):  # before the first update it is the policy
        assert values == pytest.approx(first.get(tuple(row), values), abs=2e-5)
    assert given["ref_logprobs"] == [pytest.approx(row, abs=1e-5) for row in event["output"]["ref_per_token_logps"]]
    ratios = [math.exp(new - old) for news, olds in zip(given["logprobs"], given["old_logprobs"], strict=True)
              for new, old in zip(news, olds, strict=True)]
    assert max(abs(ratio - 1) for ratio in ratios) > 1e-3, "three updates have moved the policy"


def test_the_log_probs_of_vllm_are_those_of_the_sampler():
    """GRPOTrainer returns them with each generation, NaN where vLLM gave none."""
    trainer = fake.GRPOTrainer(LabCallback())
    [event] = generations(trainer)
    of_vllm = [[-0.5 - place, *row[1:]] for place, row in enumerate(event["output"]["old_per_token_logps"])]
    of_vllm[0][0] = math.nan
    event["output"]["sampling_per_token_logps"] = of_vllm
    [(_, given)] = sent(trainer)
    for row, passed, tokens in zip(given["sampler_logprobs"], of_vllm, given["tokens"], strict=True):
        assert row == pytest.approx(passed[:len(tokens)], abs=1e-5, nan_ok=True)
    assert given["old_logprobs"] != given["sampler_logprobs"]


def test_rloos_log_probs_of_the_old_policy_and_the_reference_are_those_of_its_own_passes():
    trainer = fake.RLOOTrainer(LabCallback())
    for (_, given), event in zip(sent(trainer), generations(trainer), strict=True):
        for column, passed in zip(("old_logprobs", "ref_logprobs"), event["scores"], strict=True):
            assert given[column] == [pytest.approx(row[:len(tokens)], abs=1e-5) for row, tokens in zip(
                passed["returned"][0], given["tokens"], strict=True)]
        assert [sum(row) for row in given["old_logprobs"]] == pytest.approx(event["output"]["old_logps"], abs=1e-4)


def test_evaluations_are_not_the_completions_of_a_step():
    trainer = fake.RLOOTrainer(LabCallback())
    evaluated = [event["logs"]["completion"][-2:] for event in trainer.events if event["event"] == "generate"
                 and event["mode"] == "eval"]
    assert evaluated and len(sent(trainer)) == len(generations(trainer))


def test_every_second_generation_and_the_tokens_of_two_completions():
    trainer = fake.RLOOTrainer(LabCallback(every=2, completions=1))
    found = sent(trainer)
    assert [step for step, _ in found] == [1, 3]
    for _, given in found:
        assert len(given["completions"]) == 2
        for column in ("tokens", "logprobs", "old_logprobs", "ref_logprobs", "entropy"):
            assert given[column][0] and given[column][1:] == [None], column


def test_a_training_that_ends_between_two_generations_sends_the_last_one():
    trainer = fake.GRPOTrainer(LabCallback())
    trainer.events = [event for event in trainer.events if event.get("step", 0) < 3 or event["event"] == "on_train_end"]
    end = next(at for at, event in enumerate(trainer.events) if event.get("step") == 2) + 2
    trainer.events = [*trainer.events[:end], trainer.events[-1]]
    [(_, given)] = sent(trainer)
    assert len(given["completions"]) == 8


def test_a_completion_that_the_loss_ignores_has_tokens():
    """mask_truncated_completions sets the mask of a truncated completion to 0."""
    trainer = fake.RLOOTrainer(LabCallback())
    event = generations(trainer)[0]
    event["output"] = {**event["output"], "completion_mask": [[0] * 4, event["output"]["completion_mask"][1]]}
    (_, given), *_ = sent(trainer)
    assert len(given["tokens"][0]) == len(given["logprobs"][0]) == 4


def test_an_error_in_the_completions_affects_neither_training_nor_metrics():
    trainer = fake.RLOOTrainer(LabCallback())
    trainer.num_generations = "two"
    with pytest.warns(UserWarning, match="on_step_end"):
        assert sent(trainer) == []
    assert len(FakeWatch.made[-1].of("log")) == 4
    other = fake.RLOOTrainer(LabCallback())
    del other._metrics["train"]
    other._metrics = {"eval": other._metrics["eval"], "train": other._metrics["eval"]}
    other.accelerator = None
    with pytest.warns(UserWarning, match="reading the completions"):
        assert sent(other) == []


@pytest.mark.parametrize("value, messages", [
    ("plain", "plain"), ([], []),
    ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi", "name": "Ann"}],
     [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]),
    ([{"role": "user", "content": [{"type": "image", "image": object()}, {"type": "text", "text": "a cat?"}]}],
     [{"role": "user", "content": "[image]a cat?"}]),
    ([{"role": "assistant", "content": None, "tool_calls": [{"name": "add"}]}],
     [{"role": "assistant", "content": "", "tool_calls": [{"name": "add"}]}])])
def test_conversations_are_sent_as_messages_without_pictures(value, messages):
    assert sent_of(value) == messages


def test_a_generation_of_conversations_is_sent_as_messages():
    trainer = fake.GRPOTrainer(LabCallback())
    [event] = generations(trainer)
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    event["logs"]["prompt"] = [asked for _ in event["logs"]["prompt"]]
    [(_, given)] = sent(trainer)
    assert given["prompts"] == [asked] * len(given["completions"])


@pytest.mark.parametrize("rewards, weights, sent", [
    ({"f": [1.0, 0.5]}, [1.0], {"f": [1.0, 0.5]}),
    ({"f": [1.0, 0.5]}, [2.0], {"f": [1.0, 0.5], "reward": [2.0, 1.0]}),
    ({"f": [1.0, None, None], "g": [math.nan, 4.0, None]}, [1.0, 0.5],
     {"f": [1.0, None, None], "g": [None, 4.0, None], "reward": [1.0, 2.0, None]}),
    ({"reward": [1.0], "g": [2.0]}, [1.0, 1.0], {"function reward": [1.0], "g": [2.0], "reward": [3.0]})])
def test_the_total_is_trls_weighted_sum(rewards, weights, sent):
    assert with_total(rewards, weights) == sent


def test_the_totals_of_a_generation_have_the_mean_that_trl_logs():
    trainer = fake.GRPOTrainer(LabCallback())
    [(_, given)] = sent(trainer)
    [logged] = [event["logs"]["reward"] for event in trainer.events if event["event"] == "on_log" and
                "reward" in event["logs"]]
    totals = [each for each in given["rewards"]["reward"] if each is not None]
    assert len(totals) == 8 and sum(totals) / 8 == pytest.approx(logged, abs=1e-5)


def test_numbers_are_numbers_or_nothing():
    assert numbers([1, 0.1234567, None, math.nan]) == [1.0, 0.12346, None, None]


def test_wrapped_methods_are_restored_in_order():
    class Owner:
        def act(self) -> str:
            return "class"

    owner, wrapped = Owner(), Wrapped()
    wrapped.put(owner, "act", lambda original: lambda: f"one {original()}")
    wrapped.put(owner, "act", lambda original: lambda: f"two {original()}")
    assert owner.act() == "two one class" and "act" in wrapped and "other" not in wrapped
    wrapped.undo()
    assert owner.act() == "class" and "act" not in vars(owner)
    owner.act = lambda: "own"
    wrapped.put(owner, "act", lambda original: lambda: f"three {original()}")
    wrapped.undo()
    assert owner.act() == "own"
