"""Who writes the answers that the supervised loop learns from."""

import torch

from labcore.llm.loops import sft
from labcore.llm.networks import POLICY, TEACHER
from labcore.llm.written import next_writer, written
from tests.llm.tools import records, session


def test_the_share_of_batches_that_the_policy_writes():
    started = session("gkd", letters=False, on_policy_share=0.25)
    drawn = [next_writer(started) for _ in range(400)]
    assert set(drawn) == {POLICY, ""} and 70 <= drawn.count(POLICY) <= 130
    for share, answers, expected in ((1.0, "given", POLICY), (0.0, "given", ""), (0.0, "teacher", TEACHER)):
        started.knobs |= {"on_policy_share": share, "answers": answers}
        assert {next_writer(started) for _ in range(5)} == {expected}


def test_plain_sft_draws_no_number_for_it():
    started = session("sft", letters=False)
    before = started.rng.bit_generator.state
    assert next_writer(started) == "" and started.rng.bit_generator.state == before


def test_the_teacher_writes_what_it_finds_likely_and_the_policy_what_it_does():
    started = session("seqkd", letters=False)
    problems = started.task.problems(32, started.rng)
    right = {}
    for writer in (TEACHER, POLICY):
        asked, examples = written(started, writer, problems)
        assert [each.prompt for each in asked] == [each.prompt for each in problems]
        right[writer] = sum(each.answer == problem.answer for each, problem in zip(asked, problems, strict=True))
        assert len(examples.answers) == 32 and examples.answers.sampled_logprobs.shape == examples.answers.ids.shape
    assert right[TEACHER] > 20 and right[POLICY] == 0


def test_tokens_count_once_whoever_writes_them_and_examples_show_what_was_learnt():
    for algorithm in ("seqkd", "gkd"):
        started = session(algorithm, letters=False, steps=1, on_policy_share=0.0 if algorithm == "seqkd" else 1.0)
        (record,) = records(started, pictures=True)
        example = record.samples["examples"][0]
        assert record.tokens == started.tokens > 0
        assert "".join(example["tokens"]).removesuffix("<eos>").startswith(example["text"][:3])


def test_an_answer_by_the_policy_has_no_gradient_through_its_sampling():
    started = session("gkd", letters=False, on_policy_share=1.0)
    _, examples = sft.next_examples(started)
    assert not examples.answers.sampled_logprobs.requires_grad
    sft.gradients(started, examples.prompts, examples.answers)
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in started.policy.parameters())
    assert all(p.grad is None for p in started.models[TEACHER].parameters())
