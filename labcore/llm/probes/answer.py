"""Models that answer: the same prompt token by token for a few of them, or the same questions for many.

Equal seeds are equal randomness: every model draws its tokens with the same random numbers in the same places, so
where two answers differ, the models do (as long as their vocabularies have one size). All log-probabilities are in
nats, of the distribution that was sampled (at the temperature; at temperature 0, which takes the likeliest token, of
that at 1), of the whole vocabulary even where top-k or top-p left a part of it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from labcore.catalog.llm.knobs import MAX_NEW_TOKENS, TEMPERATURE, TOP_K, TOP_P
from labcore.catalog.llm.models import MODELS
from labcore.device import pick_device
from labcore.errors import LabError, listed, quoted
from labcore.llm.batch import Prompts
from labcore.llm.generation import Generated, Sampling, generate
from labcore.llm.nets.forward import completion_outputs, precision
from labcore.llm.nets.model import build, load
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.llm.rendering import USER
from labcore.llm.session import LlmSession
from labcore.llm.token_texts import alternative, token_texts
from labcore.runs.models import Source, base_folder, source
from labcore.runs.spec.model_names import BASE, START, Model, parse
from labcore.tasks.environment import Begun, EnvironmentTask, Episode
from labcore.tasks.goal import QUIZ_STREAM
from labcore.tasks.held_out import problems_of
from labcore.tasks.task import Problem, Score, Turn, draw, held_of, make_task

# ---------------------------------------------------------------- answer session
# Sessions on a named model (see `labcore.runs.spec.model_names`): one that can only answer, and one that can also
# learn.


def reader(name: str, knobs: Mapping[str, Any], seed: int) -> LlmSession:
    """A session that holds nothing but the policy `name`, with `knobs` in place of the run's and fresh randomness.
    Raises LabError if the model, its task's file or the device cannot be used."""
    return session_on(source(parse(name)), knobs, seed)


def session_on(found: Source, knobs: Mapping[str, Any], seed: int) -> LlmSession:
    """A session on the model of a `Source`, as `reader`. Raises LabError as `reader`."""
    spec, device = found.spec, pick_device(found.spec.device)
    torch.set_num_threads(spec.threads)
    task = make_task(spec.task_row, spec.knobs, spec.data)
    if weights := found.checkpoint / "policy" if found.checkpoint else found.weights:
        policy, tokenizer = _loaded(str(weights), device)
    else:
        tokenizer = character_tokenizer(task.characters)
        policy = frozen_on(build(MODELS[spec.model], tokenizer, spec.seed), device)
    return LlmSession(spec, task, tokenizer, device, {"policy": policy}, {}, torch.Generator(device).manual_seed(seed),
                      np.random.default_rng(seed), {**spec.knobs, **knobs}, prompt_seed=seed)


@lru_cache(maxsize=2)  # a model and the base that all are compared with: nobody writes to them, or moves them
def _loaded(weights: str, device: torch.device) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    model, tokenizer = load(weights)
    return frozen_on(model, device), tokenizer


def frozen_on(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """The model on a device, to be asked and not to learn."""
    return model.to(device).eval().requires_grad_(False)


def learner(name: str) -> LlmSession:
    """The session of a run at the named model, with its reference, critic and optimizers. Raises LabError as
    `reader`."""
    model = parse(name)
    found = source(model)
    spec = found.spec
    torch.set_num_threads(spec.threads)
    if model.stage == START:
        return LlmSession.start(spec)
    base = None if spec.parent else base_folder(spec)  # a fork's checkpoint holds all that came of it
    return LlmSession.start(replace(spec, parent=None) if model.stage == BASE else spec, base, found.checkpoint)


# ---------------------------------------------------------------- answer

TOP = 5  # likeliest tokens shown at each position
MOST_MODELS, MOST_ANSWERS, MOST_QUESTIONS = 3, 16, 1024
EPISODES = 64  # in which a prompt is looked for


def answer(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Sample `count` answers of each of `models` to `prompt`, with each token's log-prob under the model and under its
    base.

    `answer` is what the verifier compares with; None: no verifier. `turns`, each with role and content, are the
    conversation before the prompt, and `system` is a system prompt in place of the run's own. Also `temperature`,
    `top_k`, `top_p`, `max_new_tokens`, `seed`. Of each model `ends` are its end tokens in words. Raises LabError if a
    model cannot be used, a setting is out of bounds, or a tokenizer does not know a character.
    """
    models, knobs, seed = _models(spec, MOST_MODELS), settings(spec), whole(spec, "seed", 0, 2**31 - 1)
    count = whole(spec, "count", 1, MOST_ANSWERS) if spec["temperature"] else 1
    knobs |= {} if spec.get("system") is None else {"system_prompt": str(spec["system"])}
    problem = problem_of(spec)
    columns, vocabularies = [], set()
    for name in models:
        session = reader(name, knobs, seed)
        problem = begun(session, problem)
        check_known(session, "".join([problem.prompt, *(turn.content for turn in problem.turns)]))
        base = reader(Model(parse(name).run, BASE).name, knobs, seed)
        generated = generate(session, session.policy, [problem], count, Sampling.of(session.knobs))
        verified = spec.get("answer") is not None and session.spec.task_row.verifiable
        scores = [session.task.score(problem, text) if verified else None for text in generated.texts]
        columns.append({"model": name, "ends": [session.tokenizer.decode([end]) for end in session.rendering.ends],
                        "answers": [_answer(session, base, generated, row, scores[row]) for row in range(count)]})
        vocabularies.add(session.policy.config.get_text_config().vocab_size)
    return {"prompt": problem.prompt, "columns": columns, "twins": len(vocabularies) == 1}


def quiz(spec: Mapping[str, Any]) -> dict[str, Any]:
    """One answer of each of `models` to each question: `count` fresh problems of their task, or `prompt` over again.

    The problems are drawn by `seed` alone, so that they are the same whoever answers them, and apart from any batch
    of a run with that seed; of a file with fewer each is asked once. Of a file of which rows are held out these are
    asked. Settings as in `answer`. Raises LabError as `answer`; also where the models' tasks differ.
    """
    models, knobs, seed = _models(spec, 64), settings(spec), whole(spec, "seed", 0, 2**31 - 1)
    count, columns, tasks = whole(spec, "count", 1, MOST_QUESTIONS), list[dict[str, Any]](), dict[Any, str]()
    problems: list[Problem] = []
    for name in models:
        session = reader(name, knobs, seed)
        tasks[task_of(session)] = name
        if len(tasks) > 1 and spec.get("prompt") is None:
            raise LabError(f"{' and '.join(tasks.values())} learnt different tasks, or one with different settings: "
                           "choose runs of one task.")
        problems = problems or _problems(spec, session, count)
        check_known(session, "".join(problem.prompt for problem in problems))
        generated = generate(session, session.policy, problems, 1, Sampling.of(session.knobs))
        verified = session.spec.task_row.verifiable and (spec.get("prompt") is None or spec.get("answer") is not None)
        answers = [scored(text, session.task.score(problem, text) if verified else None, cut)
                   for problem, text, cut in zip(problems, generated.texts, generated.completions.truncated.tolist(),
                                                 strict=True)]
        columns.append({"model": name, "answers": answers})
    return {"questions": [_question(problem) for problem in problems], "columns": columns}


def episode(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Play one episode with the model `model`, after the given turns `begun`: each is [its text, the text that the
    model reads instead of the environment's answer, or null]. `turns` is the most turns that the model writes; null: no
    limit.

    The episode starts from `row`, or, if this is null, from the first question of a quiz with this seed. Settings as in
    `answer`. Raises LabError as `answer`, or if the task has no turns, or an episode of that row cannot be played.
    """
    knobs, seed = settings(spec), whole(spec, "seed", 0, 2**31 - 1)
    session = reader(parse(str(spec["model"])).pinned.name, knobs, seed)
    task = session.task
    if not isinstance(task, EnvironmentTask):
        raise LabError(f"The task of {spec['model']} has no turns: choose a run on an environment.")
    [drawn] = task.problems(1, np.random.default_rng((seed, QUIZ_STREAM)))
    problem = drawn if spec.get("row") is None else Problem("", "", columns=spec["row"])
    problem = replace(problem, prompt=task.begin(problem).first, answer="")
    begun = [Begun(str(text), instead) for text, instead in spec["begun"]]
    check_known(session, "".join([problem.prompt, *(f"{text}{instead or ''}" for text, instead in begun)]))
    found = generate(session, session.policy, [problem], 1, Sampling.of(session.knobs), begun=begun,
                     turns=spec.get("turns"))
    [text] = found.texts
    return {"first": problem.prompt, **scored(text, task.score(problem, text), bool(found.completions.truncated[0]))}


def settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling knobs of a session; a run's other filters are off. Temperature 0 is the likeliest token. Raises
    LabError out of bounds."""
    greedy = not spec["temperature"]
    return {"temperature": 1.0 if greedy else TEMPERATURE.check(spec["temperature"]),
            "top_k": 1 if greedy else TOP_K.check(spec.get("top_k", 0)),
            "top_p": 1.0 if greedy else TOP_P.check(spec.get("top_p", 1.0)),
            "min_p": 0.0, "repetition_penalty": 1.0, "max_new_tokens": MAX_NEW_TOKENS.check(spec["max_new_tokens"])}


def task_of(session: LlmSession) -> tuple[Any, ...]:
    """The key under which two sessions have the same problems: the task, its own knobs and its file."""
    spec = session.spec
    return spec.task, spec.data, *spec.of_task.items()


def check_known(session: LlmSession, text: str) -> None:
    """Check that the tokenizer has a token for every character of a text. Raises LabError with the missing characters.
    """
    unknown = session.tokenizer.unk_token_id

    def missing(some: str) -> bool:
        return unknown in session.tokenizer(some, add_special_tokens=False)["input_ids"]
    if unknown is not None and missing(text):
        lacks = [letter for letter in sorted(set(text)) if missing(letter)]
        raise LabError(f"The model's tokenizer does not know {listed([*map(repr, lacks)])}: write the prompt without.")


def problem_of(spec: Mapping[str, Any]) -> Problem:
    """The prompt with the conversation before it."""
    before = [Turn(str(turn["role"]), str(turn["content"])) for turn in spec.get("turns", ())]
    prompt = str(spec["prompt"])
    return Problem(prompt, spec.get("answer") or "", turns=(*before, Turn(USER, prompt)) if before else ())


def begun(session: LlmSession, problem: Problem) -> Problem:
    """The problem. For a task with several turns, the task's own episode that begins with these turns: its row is
    hidden. Raises LabError if no episode begins with them."""
    if not isinstance(session.task, EnvironmentTask):
        return problem
    known = session.task.problems(EPISODES, np.random.default_rng(0))
    found = next((each for each in known if each.prompt == problem.prompt), None)
    if found is None:
        raise LabError(f"The environment {session.task.name} begins episodes itself, for example with "
                       f"{quoted(known[0].prompt)}: choose one of the task's prompts.")
    return found


def _question(problem: Problem) -> dict[str, Any]:
    """A problem as a page shows it, with the turns of its conversation where it has several."""
    turns = [turn._asdict() for turn in problem.turns]
    return {"prompt": problem.prompt, "answer": problem.answer} | ({"turns": turns} if turns else {})


def _models(spec: Mapping[str, Any], most: int) -> list[str]:
    names = [str(name) for name in spec["models"]]
    if not 1 <= len(names) <= most:
        raise LabError(f"{len(names)} models were asked: choose one to {most}.")
    return [parse(name).pinned.name for name in names]


def whole(spec: Mapping[str, Any], key: str, low: int, high: int) -> int:
    """The whole number `spec[key]`. Raises LabError where it is none from `low` to `high`."""
    value = spec[key]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise LabError(f"{key} must be a whole number from {low} to {high}, not {quoted(value)}.")
    return value


def _problems(spec: Mapping[str, Any], session: LlmSession, count: int) -> list[Problem]:
    if spec.get("prompt") is not None:
        return [Problem(str(spec["prompt"]), spec.get("answer") or "")] * count
    stream = np.random.default_rng((int(spec["seed"]), QUIZ_STREAM))
    if held := problems_of(held_of(session.task)):  # what the runs have not been trained on
        return draw(held, min(count, len(held)), stream)
    return session.task.problems(min(count, session.task.size or count), stream)


def scored(text: str, score: Score | None, truncated: bool) -> dict[str, Any]:
    turns = {"turns": [move._asdict() for move in text.moves], "ended": text.done} if isinstance(text, Episode) else {}
    return {"text": text, "truncated": truncated, "reward": score and score.reward, "exact": score and score.exact,
            **turns}


def _answer(session: LlmSession, base: LlmSession, generated: Generated, row: int,
            score: Score | None) -> dict[str, Any]:
    """Everything of one answer: log-probs of its tokens under model and base, and the likeliest others."""
    completions = generated.completions
    length = int(completions.extents[row])
    ids = completions.ids[row: row + 1, :length]
    own, other = (log_probabilities(each, generated.prompts, ids) for each in (session, base))  # (T, V)
    mask = completions.mask[row, :length]  # of an episode without what its environment wrote
    logprobs, base_logprobs = (table.gather(1, ids.T)[:, 0].masked_fill(~mask, 0).tolist() for table in (own, other))
    written = ids[0].tolist()
    top, chosen = zip(*(_likeliest(session, own[at], other[at], written[:at], token)
                        for at, token in enumerate(written)), strict=True)
    return {**scored(generated.texts[row], score, bool(completions.truncated[row])),
            "tokens": token_texts(session.tokenizer, written),
            **({} if bool(mask.all()) else {"observed": (~mask).tolist()}),
            "logprob": round(sum(logprobs), 4), "base_logprob": round(sum(base_logprobs), 4),
            "logprobs": [round(value, 4) for value in logprobs],
            "base_logprobs": [round(value, 4) for value in base_logprobs],
            "top": list(top), "chosen": list(chosen)}


@torch.no_grad()
def log_probabilities(session: LlmSession, prompts: Prompts, ids: Tensor) -> Tensor:
    """log π of the whole vocabulary before each token of one completion (1, T). Returns (T, V), nats"""
    with precision(session.policy, session.knobs["dtype"]):
        logits = completion_outputs(session.policy, prompts, ids)[0]
    logprobs: Tensor = (logits.float() / session.knobs["temperature"]).log_softmax(-1)
    return logprobs


def _likeliest(session: LlmSession, own: Tensor, other: Tensor, before: list[int],
               chosen: int) -> tuple[list[list[Any]], int]:
    """[token, π, π_base] of the model's TOP tokens, the base's first, and the chosen one, and the place of that one.
    (V,), (V,); `before` are the answer's tokens before it."""
    wanted = dict.fromkeys([*own.topk(min(TOP, len(own))).indices.tolist(), int(other.argmax()), chosen])
    order = sorted(wanted, key=lambda token: -float(own[token]))
    return [[alternative(session.tokenizer, before, token), round(float(own[token].exp()), 5),
             round(float(other[token].exp()), 5)] for token in order], order.index(chosen)
