"""Best of n: many answers of one model to a prompt, ranked by a reward model, with the verdicts of the verifier.

Source: Lightman et al. 2023, arXiv:2305.20050, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from labcore.catalog.families.process import OF_PUBLISHED, RANKINGS
from labcore.errors import LabError, quoted
from labcore.llm.generation import Generated, Sampling, generate
from labcore.llm.nets.scorer import check_tokenizer, load_scorer, scores, scores_steps
from labcore.llm.nets.text_step_scorer import TextStepScorer
from labcore.llm.probes.answer import begun, check_known, problem_of, reader, scored, settings, whole
from labcore.llm.process_rewards import StepScorer, scores_by, steps_for, totals
from labcore.llm.rendering import encode_answers
from labcore.llm.reward_models import published
from labcore.llm.session import LlmSession
from labcore.llm.step_labels import verified_steps
from labcore.llm.steps import Steps
from labcore.runs.spec.model_names import is_published, parse, reward_model_of
from labcore.tasks.environment import EnvironmentTask
from labcore.tasks.steps import StepTask
from labcore.tasks.task import Problem

MOST = 256  # answers


def best_of_n(spec: Mapping[str, Any]) -> dict[str, Any]:
    """`count` answers of `model` to `prompt` with their scores by the reward model `scorer`, the highest first.

    If the reward model scores steps, `by` (one of RANKINGS) makes one score of them, and each answer has its `steps`:
    [text, score, gold], where gold is the verdict of the task's verifier on the step, or None without one. The keys of
    OF_PUBLISHED are settings for published step scorers. Other settings as in `probes.answer.answer`. Raises LabError
    as `answer`; or if the reward model cannot be used with this model.
    """
    count, seed = whole(spec, "count", 1, MOST), whole(spec, "seed", 0, 2**31 - 1)
    model = parse(str(spec["model"])).pinned.name
    session = reader(model, settings(spec) | (
        {} if spec.get("system") is None else {"system_prompt": str(spec["system"])}), seed)
    if isinstance(session.task, EnvironmentTask):
        raise LabError("A reward model reads a completion as one answer, and this task has several turns: choose a run "
                       "of another task.")
    problem = begun(session, problem_of(spec))
    check_known(session, "".join([problem.prompt, *(turn.content for turn in problem.turns)]))
    generated = generate(session, session.policy, [problem], count, Sampling.of(session.knobs))
    verified = spec.get("answer") is not None and session.spec.task_row.verifiable
    rewards = [session.task.score(problem, text) if verified else None for text in generated.texts]
    scorer, by = str(spec["scorer"]), str(spec.get("by", RANKINGS[0]))
    knobs = {**OF_PUBLISHED, **{key: spec[key] for key in OF_PUBLISHED if key in spec}}
    grades, steps = _graded(session, scorer, by, problem, generated, verified, knobs)
    answers = [scored(text, rewards[row], bool(generated.completions.truncated[row])) | {
        "score": round(grades[row], 5), "steps": steps[row]} for row, text in enumerate(generated.texts)]
    return {"prompt": problem.prompt, "model": model, "scorer": scorer, "of_steps": any(steps),
            "answers": sorted(answers, key=lambda each: -each["score"])}


Step = list[Any]  # its text, its score, and what the verifier says of it


def _graded(session: LlmSession, name: str, by: str, problem: Problem, generated: Generated,
            verified: bool, knobs: Mapping[str, Any]) -> tuple[list[float], list[list[Step]]]:
    """The score of each answer by the reward model `name`, and its scored steps; no steps for a model of whole answers.
    """
    chat = session.rendering.template is not None
    nothing: list[list[Step]] = [[] for _ in generated.texts]
    if is_published(name):
        theirs = published(name, knobs).to(session.device)
        if isinstance(theirs, TextStepScorer):
            return _by_steps(session, theirs, by, problem, generated, verified)
        return theirs.scores([problem] * len(nothing), generated.texts, chat, "fp32").tolist(), nothing
    folder = reward_model_of(name)
    check_tokenizer(folder, name, session.tokenizer)
    model = load_scorer(folder, name).to(session.device)
    if scores_steps(model):
        return _by_steps(session, model, by, problem, generated, verified)
    prompts, completions = generated.prompts, generated.completions
    if chat:  # it learnt conversations as the template ends them
        prompts, completions = encode_answers(session.rendering, [problem], generated.texts, session.context,
                                              session.device, completions.truncated.tolist())
    found: list[float] = scores(model, prompts, completions, str(session.knobs["dtype"]), session.room).tolist()
    return found, nothing


def _by_steps(session: LlmSession, model: StepScorer, by: str, problem: Problem, generated: Generated,
              verified: bool) -> tuple[list[float], list[list[Step]]]:
    if by not in RANKINGS:
        raise LabError(f"The score of an answer cannot be {quoted(by)}: choose {', '.join(RANKINGS)}.")
    answers = steps_for(session, model, generated.completions)
    found = scores_by(session, model, [problem], answers)
    gold = verified_steps(session, [problem], generated, answers) if verified and isinstance(
        session.task, StepTask) else None
    steps = [_steps(each, found[row], gold[row] if gold else None) for row, each in enumerate(answers)]
    return totals(found, by), steps


def _steps(answer: Steps, found: Tensor, gold: list[float] | None) -> list[Step]:
    return [[text, round(float(found[place]), 5), gold[place] if gold else None]
            for place, text in enumerate(answer.texts)]
