"""What a session holds, what it tells before the first step, its optimizer, its forks and its precision."""

import json
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from labcore.catalog.llm.algorithms import ALGORITHMS as TABLE
from labcore.errors import LabError
from labcore.llm.experience import collect
from labcore.llm.generation import Sampling, generate
from labcore.llm.nets import recompute
from tests.every import now
from tests.llm.tools import completion_ids, records, session, unlike, weights

ALGORITHMS = unlike(TABLE.values())


@pytest.mark.parametrize(("algorithm", "dtype"), now(
    [("grpo", "fp32"), ("ppo", "bf16"), ("dpo", "fp32"), ("sft", "bf16"), ("reward_model", "fp32")],
    ("ppo", "bf16"), ("dpo", "fp32")))
def test_a_run_whose_layers_are_computed_again_is_the_same_run(algorithm, dtype):
    kept, again = (session(algorithm, steps=2, dtype=dtype, gradient_checkpointing=on) for on in (False, True))
    learns = next(iter(again.optimizers))
    assert recompute.marked(again.models[learns]) and not recompute.marked(kept.models[learns])
    assert not again.models[learns].training, "no dropout"
    for one, other in zip(records(kept), records(again), strict=True):
        assert other.metrics == pytest.approx(one.metrics, rel=1e-4 if dtype == "fp32" else 0.2, abs=2e-2)


def test_an_export_is_a_hugging_face_folder(tmp_path):
    started = session("grpo")
    records(started)
    started.export(tmp_path / "export")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "export").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "export")
    ids = completion_ids(2, 8, started.policy.config.vocab_size)
    assert torch.equal(model(input_ids=ids).logits, started.policy(input_ids=ids).logits)
    assert tokenizer("dbca=")["input_ids"] == started.tokenizer("dbca=")["input_ids"]
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1) and tokenizer.padding_side == "left"


def test_an_optimizer_step_is_clipped_and_says_the_norm_before():
    started = session("grpo", max_grad_norm=0.5)
    parameters = list(started.policy.parameters())
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    count = sum(parameter.numel() for parameter in parameters)
    seen = []
    started.optimizers["policy"].register_step_pre_hook(
        lambda *_: seen.append(torch.cat([p.grad.flatten() for p in parameters]).norm().item()))
    assert started.optimise("policy", 1e-3, 0.0) == pytest.approx(count ** 0.5, rel=1e-5)
    assert seen == [pytest.approx(0.5, rel=1e-4)]
    assert all(parameter.grad is None for parameter in parameters)


def test_what_it_holds_is_ready_to_train():
    started = session("ppo")
    assert not any(network.training for network in started.models.values())  # no dropout anywhere
    assert not any(p.requires_grad for p in started.reference.parameters())
    assert started.context == 64
    held = {id(p) for group in started.optimizers["policy"].param_groups for p in group["params"]}
    assert held == {id(p) for p in started.policy.parameters()}


def test_a_length_limit_that_leaves_no_room_is_told_before_the_first_step():
    with pytest.raises(LabError, match=r"`max_new_tokens` 64 leaves no room .* context of 64 tokens: use 63"):
        session("grpo", max_new_tokens=64)
    session("grpo", max_new_tokens=63)


@pytest.mark.parametrize("algorithm, task", [("grpo", "prompts"), ("dpo", "preferences")])
def test_a_prompt_of_the_file_that_does_not_fit_is_told_before_the_first_step(algorithm, task, tmp_path):
    path = tmp_path / "own.jsonl"
    given = {"letters": False, "task": task, "data": str(path), "max_new_tokens": 6}

    def write(length):
        lines = [{"prompt": "a" * count, "answer": "1", "chosen": "b", "rejected": "c"} for count in (3, length)]
        path.write_text("\n".join(map(json.dumps, lines)))

    write(58)
    session(algorithm, **given)
    write(59)
    with pytest.raises(LabError, match=r"line 2.* has 59 tokens, but the model has room for 58"):
        session(algorithm, **given)


def test_a_length_limit_raised_during_the_run_cuts_at_the_end_of_the_context():
    started = session("grpo", steps=2)
    started.knobs["max_new_tokens"] = 4096
    generated = generate(started, started.policy, started.task.problems(4, started.rng), 2,
                         Sampling.of(started.knobs))
    width = generated.prompts.ids.shape[1]
    assert generated.completions.ids.shape[1] <= started.context - width < started.context
    assert len(records(started)) == 2


@pytest.mark.parametrize("algorithm", now(ALGORITHMS, "ppo"))
def test_bf16_computes_in_bfloat16_and_learns_in_float32(algorithm):
    exact, first, again = (session(algorithm, dtype=dtype) for dtype in ("fp32", "bf16", "bf16"))
    expected, got = records(exact), records(first)
    assert [r.metrics for r in got] == [r.metrics for r in records(again)]
    assert got[-1].metrics["grad_norm"] != expected[-1].metrics["grad_norm"]
    scorer = next((name for name in first.models if name.endswith("reward_model")), "")
    learner, number = (scorer, "loss") if scorer else ("policy", "entropy")
    assert got[0].metrics[number] == pytest.approx(expected[0].metrics[number], rel=0.05)
    assert all(parameter.dtype == torch.float32 for parameter in first.models[learner].parameters())
    assert not torch.equal(weights(first.models[learner]), weights(session(algorithm).models[learner]))


def test_a_weight_without_a_gradient_stays_as_it_is():
    """No weight decay: each optimizer moves what the loss moves and nothing else."""
    started = session("ppo")
    for name, optimizer in started.optimizers.items():
        for weight in started.models[name].parameters():
            weight.grad = torch.zeros_like(weight)
        before = weights(started.models[name])
        optimizer.step()
        assert torch.equal(weights(started.models[name]), before)


def test_a_fork_without_common_random_numbers_has_prompts_of_its_own():
    """The prompts of a step come of the prompts' seed and the step alone."""
    parents = [session("grpo") for _ in range(2)]
    for parent in parents:
        records(parent)
    spec = replace(parents[0].spec, parent=("parent", parents[0].step), seed=99)
    same, other = (parent.fork(replace(spec, twin=twin)) for parent, twin in zip(parents, (True, False), strict=True))
    assert (same.prompt_seed, other.prompt_seed) == (0, 99)
    drawn = [[problem.prompt for problem in collect(child).batch.problems] for child in (same, other)]
    assert drawn[0] != drawn[1]
