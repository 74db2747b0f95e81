"""A teacher with a context: what it reads, what it says then, and a policy that learns from itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from labcore.catalog import choices
from labcore.errors import LabError
from labcore.llm import objective, teacher_context
from labcore.llm.experience import collect
from labcore.llm.generation import token_logprobs
from labcore.llm.loops import online, sft
from labcore.llm.networks import REFERENCE, TEACHER
from labcore.llm.probes import view
from labcore.llm.rendering import encode_prompts
from labcore.llm.rollout import Rollout, credit
from labcore.llm.teacher import with_divergence
from labcore.maths.call import call, member
from labcore.maths.logprobs import selective_log_softmax
from labcore.runs.spec.run_spec import base_spec, make
from labcore.tasks.countdown import Countdown
from labcore.tasks.environment import Episode, Move
from labcore.tasks.guess import Guess
from labcore.tasks.task import Problem, Turn, feedback_on
from tests.every import every
from tests.llm.tools import prompts as some_prompts
from tests.llm.tools import records, session, shake
from tests.references import golden

TEMPLATE = "{context}|{prompt}"
TRL = golden("trl_self")


@every("case", TRL["losses"])
def test_the_loss_and_its_gradient_are_those_of_trl(case):
    """SDFTTrainer and SDPOTrainer with the whole vocabulary and with the sampled token, and at another temperature."""
    row = {"SDFTTrainer": "sdft", "SDPOTrainer": "sdpo"}[case["trainer"]]
    knobs = make(algorithm_key=row, task_key="sort", knobs={
        "single_step": case["mode"] == "full_logits", "temperature": case["temperature"]}).knobs
    student, teacher = (torch.tensor(case[side], dtype=torch.float64) for side in ("student", "teacher"))
    student.requires_grad_()
    ids, mask = torch.tensor(TRL["ids"]), torch.tensor(TRL["mask"]) > 0
    logprobs, entropy, _, divergence = with_divergence(student, ids, ids, teacher, nn.Identity(), case["temperature"],
                                                       entropy_grad=False)
    theirs = selective_log_softmax(teacher, ids, case["temperature"]) * mask
    old = logprobs.detach() * mask
    rollout = credit(knobs, Rollout(
        some_prompts([2, 2]), ids, mask, torch.zeros(4, dtype=torch.bool), torch.zeros(4).double(), old, old,
        teacher_logprobs=theirs, in_context=torch.tensor(case["contexts"]) > 0))
    loss, _ = objective.loss(knobs, rollout, logprobs, entropy, objective.Totals.of(rollout, 3),
                             divergence if knobs["single_step"] else None)
    assert loss.item() == pytest.approx(case["loss"], rel=1e-5, abs=1e-7)
    found = torch.autograd.grad(loss, student)[0]
    torch.testing.assert_close(found, torch.tensor(case["gradient"], dtype=torch.float64), rtol=1e-4, atol=1e-6)


@every("case", TRL["prompts"])
def test_the_teacher_reads_what_it_reads_in_trl(case):
    chosen = {(True, False): "success", (False, True): "feedback", (True, True): "success_or_feedback"}[
        case["success"], case["feedback"]]
    problems = [Problem(prompt, "", columns={"privileged_context": said})
                for prompt, said in zip("pppqqq", TRL["says"], strict=True)]
    contexts = call(member(choices.TEACHER_CONTEXT, chosen), {}, {
        "task": object(), "problems": problems, "texts": TRL["texts"], "group_size": 3,
        "exact": [bool(right) for right in case["right"]]})
    templates = {"context_template": "{prompt}|right: {context}", "feedback_template": "{prompt}|said: {context}"}
    read = [teacher_context.with_context(problem, context.text, templates[context.template]).prompt
            if context.text else problem.prompt for problem, context in zip(problems, contexts, strict=True)]
    assert read == case["read"] and [int(bool(context.text)) for context in contexts] == case["contexts"]


def test_feedback_is_the_rows_own_words_else_the_checkers_else_the_answer():
    problem = Problem("2,7,3:13=", "2*3+7")
    countdown = Countdown({"numbers": 3})
    of_file, empty = (replace(problem, columns={"privileged_context": text}) for text in ("try 2*3", ""))
    assert {feedback_on(countdown, each, "2*7-3", False) for each in (problem, empty)} == {"2*7-3=11"}
    assert not feedback_on(countdown, problem, "2**", False) and feedback_on(object(), problem, "no", False) == "2*3+7"
    assert [feedback_on(countdown, of_file, "2*7-3", right) for right in (False, True)] == ["try 2*3"] * 2, "as in TRL"
    assert not any(feedback_on(task, problem, "2*3+7", True) for task in (countdown, object())), "only on wrong ones"
    guess = Guess({"largest": 7, "max_turns": 3, "turn_tokens": 3, "observation_length": 9})
    episode = Episode([Move("4", "higher", 0.0), Move("5", "lower", 0.0)], False)
    assert feedback_on(guess, problem, episode, False) == "lower"


def test_the_context_stands_where_the_template_says():
    problem = Problem("ba=", "ab")
    assert teacher_context.with_context(problem, "ab", "{prompt}\\n{context}\\n").prompt == "ba=\nab\n"
    talk = replace(problem, turns=(Turn("system", "s"), Turn("user", "ba=")))
    assert teacher_context.with_context(talk, "ab", TEMPLATE).turns == (Turn("system", "s"), Turn("user", "ab|ba="))
    odd = "{prompt} \\n {context}"
    assert teacher_context.with_context(problem, odd, TEMPLATE).prompt == f"{odd}|ba=", "signs of the template alone"


def test_a_success_is_that_of_another_completion_of_the_group():
    problems = [Problem("p", "r")] * 6
    found = teacher_context.success(problems, list("abcdef"), [False, True, True, False, True, False], 3)
    assert [context.text for context in found] == ["b", "c", "b", "e", "", "e"]
    assert [context.text for context in teacher_context.success(problems[:2], ["a", "b"], [False, True], 2)] == [
        "b", ""]


@pytest.mark.parametrize("algorithm", ["sdft", "sdpo"])
def test_the_teacher_is_the_reference_and_reads_the_context(algorithm):
    started = session(algorithm, prompts_per_step=3, group_size=4, context_template=TEMPLATE,
                      single_step=algorithm == "sdft")
    assert started.models[TEACHER] is started.models[REFERENCE]
    shake(started.policy, by=0.3)
    batch = collect(started)
    rollout, sampled = batch.rollout, batch.batch
    exact, asked = sampled.rewards.exact.tolist(), [problem for problem in sampled.problems for _ in range(4)]
    contexts = ([problem.answer for problem in asked] if algorithm == "sdft" else
                [context.text for context in teacher_context.success(asked, sampled.texts, exact, 4)])
    assert rollout.in_context.tolist() == [bool(each) for each in contexts]
    seen = [replace(problem, prompt=f"{context}|{problem.prompt}") if context else problem
            for problem, context in zip(asked, contexts, strict=True)]
    prompts = encode_prompts(started.rendering, seen, started.context, started.device)
    expected = token_logprobs(started, started.reference, prompts, sampled.completions)
    torch.testing.assert_close(rollout.teacher_logprobs, expected)
    advantages = credit(started.knobs, rollout).advantages
    ratios = (expected - rollout.old_logprobs) * rollout.taught
    torch.testing.assert_close(advantages, torch.zeros_like(ratios) if started.knobs["single_step"] else ratios)
    assert batch.metrics["teacher/context_frac"] == pytest.approx(sum(map(bool, contexts)) / 12)


def test_a_completion_without_a_context_teaches_nothing_but_counts():
    """As in TRL's SDPOTrainer, whose mean is over all completions."""
    started = session("sdpo", prompts_per_step=2, group_size=2, context_template=TEMPLATE, single_step=True)
    shake(started.policy, by=0.3)
    rollout = credit(started.knobs, collect(started).rollout)
    none = replace(rollout, in_context=torch.zeros(4, dtype=torch.bool))
    assert not online.gradients(started, credit(started.knobs, none))["loss"]
    assert not any(weight.grad.any() for weight in started.policy.parameters())
    started.policy.zero_grad()
    one = replace(rollout, in_context=torch.tensor([True, False, False, False]))
    loss = online.gradients(started, credit(started.knobs, one))["loss"]
    whole = credit(started.knobs, replace(one, kept=torch.tensor([True, False, False, False])))
    assert loss > 0 and loss == pytest.approx(online.gradients(started, whole)["loss"] / 4, rel=1e-4)


def test_a_context_that_leaves_no_room_for_the_completion_is_left_out_and_said():
    started = session("sdft", prompts_per_step=3, group_size=2, context_template=TEMPLATE)
    problems = started.task.problems(3, started.rng)
    problems[1] = replace(problems[1], answer=problems[1].answer * started.context)
    prompts, there = teacher_context.teacher_prompts(started, problems, ["a"] * 6, torch.zeros(6), 2)
    assert there.tolist() == [True, True, False, False, True, True]
    assert prompts.lengths[2] == len(problems[1].prompt) and "teach nothing" in started.standing[-1]
    teacher_context.teacher_prompts(started, problems, ["a"] * 6, torch.zeros(6), 2)
    assert len(started.standing) == 1


def test_what_the_teacher_read_is_shown():
    started = session("sdft", prompts_per_step=2, group_size=2, context_template=TEMPLATE)
    rollout = credit(started.knobs, collect(started).rollout)
    for row in view._taught(started, rollout):
        assert "|" in row["teacher_sees"] and len(row["teacher_top"]) > 0


@pytest.mark.long
def test_the_policy_moves_towards_what_it_says_with_the_answer_in_its_context():
    size = {"steps": 15, "prompts_per_step": 16, "group_size": 2}
    started = session("sdft", **size, learning_rate=0.01, context_template=TEMPLATE)
    shake(started.policy, by=0.3)
    started.reference.load_state_dict(started.policy.state_dict())
    found = [record.metrics["loss"] for record in records(started)]
    assert sum(found[-3:]) < 0.85 * sum(found[:3]) and found[0] > 0.1


def test_the_base_of_a_run_that_teaches_itself_has_read_contexts():
    spec = make(algorithm_key="sdft", task_key="sort", knobs={"context_share": 0.25})
    base = base_spec(spec)
    assert base.algorithm == "context_sft" and base.knobs["context_share"] == 0.25
    assert base.knobs["context_template"] == spec.knobs["context_template"]
    assert base_spec(make(algorithm_key="sdft", task_key="sort", knobs={"context_share": 0.0})) == base_spec(
        make(algorithm_key="grpo", task_key="sort"))


def test_a_share_of_the_examples_of_sft_has_a_context():
    started = session("context_sft", sequences_per_step=200, context_share=0.5, context_template=TEMPLATE)
    problems, _ = sft.next_examples(started)
    with_answer = sum(problem.prompt.startswith(f"{problem.answer}|") for problem in problems)
    assert 70 < with_answer < 130
    started.knobs["context_share"] = 0.0
    assert not any("|" in problem.prompt for problem in sft.next_examples(started)[0])


def test_a_task_suggests_no_teacher_to_a_run_that_teaches_itself():
    assert make(algorithm_key="sdft", task_key="sort").knobs["teacher"] == "self"
    real = make(algorithm_key="sdpo", task_key="sort", model="HuggingFaceTB/SmolLM2-135M", absent=True)
    assert real.knobs["teacher"] == "self" and "{context}" in real.knobs["context_template"]


def test_a_row_without_a_reference_cannot_teach_itself():
    with pytest.raises(LabError, match="no reference"):
        make(algorithm_key="gkd", task_key="sort", knobs={"teacher": "self"})
