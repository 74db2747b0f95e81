"""SFT: the cross-entropy of the answers, learnt until the sampled exact match is good enough."""

from math import isfinite

import pytest
import torch
from torch.nn.functional import cross_entropy

from labcore.errors import LabError
from labcore.llm import evaluation
from labcore.llm.evaluation import Evaluation
from labcore.llm.loops import sft
from labcore.tasks.task import Problem
from tests.llm.tools import records, session, shake, weights
from tests.words import says


def scripted(monkeypatch, exact):
    """Evaluations that find these exact matches, one after the other."""
    left = iter(exact)
    monkeypatch.setattr(sft, "evaluate", lambda session: Evaluation({"exact_match": next(left)}, [], None, None))
    monkeypatch.setattr(sft.view, "sampled_groups", lambda session, *_: {"groups": []})


def test_it_stops_at_the_target_and_a_resume_does_not_go_past_it(monkeypatch, tmp_path):
    scripted(monkeypatch, [0.0, 0.3, 0.5, 0.9])
    started = session("sft", steps=50, sft_target=0.5, eval_every=2)
    assert [record.step for record in records(started)] == [1, 2, 3, 4]  # measured at 1, 2 and 4
    assert says(started.finished_because, "target", "exact match 0.50")
    started.save(tmp_path)
    resumed = session("sft", steps=50, sft_target=0.5, eval_every=2, resume=tmp_path)
    assert records(resumed) == [] and resumed.finished_because == started.finished_because


def test_a_target_of_1_never_stops_it(monkeypatch):
    scripted(monkeypatch, [1.0] * 9)
    started = session("sft", steps=6, sft_target=1.0, eval_every=1)
    assert len(records(started)) == 6 and "6 steps" in started.finished_because


@pytest.mark.parametrize(("key", "weighed"), [
    ("sft", lambda logprob: -logprob), ("dft", lambda logprob: -logprob.exp() * logprob)])
def test_the_loss_worked_by_hand(monkeypatch, key, weighed):
    """Σ −log π over all answer tokens, end tokens included, over their number; prompts are not learnt. DFT: Σ −π log π.
    """
    started = session(key)
    shake(started.policy)
    problems = [Problem("ab=", "ab"), Problem("cbad=", "abcd"), Problem("=", "")]
    monkeypatch.setattr(started.task, "problems", lambda count, rng: problems, raising=False)
    total = right = tokens = 0
    for problem in problems:
        prompt, answer = (started.tokenizer(text)["input_ids"] for text in (problem.prompt, problem.answer))
        target = torch.tensor([*answer, started.tokenizer.eos_token_id])
        whole = torch.tensor([[*prompt, *target.tolist()]])
        logits = started.policy(input_ids=whole).logits[0, len(prompt) - 1: -1].detach()
        total += weighed(-cross_entropy(logits, target, reduction="none")).sum().item()
        right += int((logits.argmax(-1) == target).sum())
        tokens += len(target)
    metrics = sft.update(started)
    assert metrics["loss"] == pytest.approx(total / tokens, rel=1e-5)
    assert metrics["mean_token_accuracy"] == pytest.approx(right / tokens)
    assert started.tokens == tokens == 9 and started.updates == 1


def test_it_learns():
    started = session("sft", steps=20, learning_rate=0.02, sft_target=1.0)
    got = [record.metrics for record in records(started)]
    assert got[-1]["loss"] < 0.3 * got[0]["loss"] and got[-1]["mean_token_accuracy"] > 0.7


def test_a_text_of_ones_own(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("To be, or not to be: thät is the question. " * 20, encoding="utf-8")
    started = session("sft", letters=False, task="text", data=str(path), steps=16, learning_rate=0.04,
                      prompt_length=8, piece_length=32, length_low=1, length_high=40)
    assert "ä" in started.tokenizer.get_vocab()
    got = records(started, pictures=True)
    assert len(got) == 16 and got[-1].metrics["loss"] < 0.5 * got[0].metrics["loss"]
    prompt = got[0].samples["groups"][0]
    assert len(prompt["prompt"]) == 8 and len(prompt["answer"]) == 24


def test_a_piece_is_cut_to_the_models_context(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcdefgh" * 100)
    started = session("sft", letters=False, task="text", data=str(path), prompt_length=8, piece_length=200)
    metrics = sft.update(started)
    assert isfinite(metrics["loss"]) and started.tokens == 8 * (started.context - 8)


def test_a_prompt_longer_than_the_context_names_its_line(monkeypatch):
    started = session("sft")
    monkeypatch.setattr(started.task, "problems", lambda *_: [Problem("a" * 64, "b", line=4)], raising=False)
    with pytest.raises(LabError, match="line 4"):
        sft.update(started)


def test_a_file_without_answers_is_refused(tmp_path):
    """Else it would teach a model to answer nothing."""
    path = tmp_path / "asks.jsonl"
    path.write_text("".join(f'{{"prompt": "Say {n}."}}\n' for n in range(9)))
    started = session("sft", letters=False, task="prompts", data=str(path), verifier="length")
    with pytest.raises(LabError, match=r"No row of asks\.jsonl has an answer.*add answers, or .*`sft_steps` 0"):
        records(started)


def test_an_evaluation_samples_fresh_prompts_and_changes_no_weight():
    started = session("dpo", eval_prompts=10)
    shake(started.policy)
    before, tokens = weights(started.policy), started.tokens
    got = evaluation.evaluate(started)
    totals = got.rewards.total
    assert len(got.problems) == len(got.generated.completions) == len(got.generated.texts) == len(totals) == 10
    assert got.metrics["reward"] == pytest.approx(totals.mean().item())
    assert got.metrics["kl"] > 0  # to the reference, which the shaken policy has left
    assert torch.equal(weights(started.policy), before) and started.tokens == tokens
    assert "kl" not in evaluation.evaluate(session("sft")).metrics
