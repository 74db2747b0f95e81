"""The options --reward, --reward-model and --judge, which say where rewards come from, as knobs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from labcore.catalog import reward_terms
from labcore.catalog.knob import shown
from labcore.catalog.reward_terms import JOIN, JUDGE, REWARD_MODEL
from labcore.errors import LabError
from labcore.runs.spec.judge_address import KEY
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import RunRow
from labcore.tasks import judge, own_reward, reward_call
from labcore.tasks.task import make_task


def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of a command that makes runs."""
    sub.add_argument("--reward", action="append", default=[], metavar="FILE:FUNCTION[=WEIGHT]", help="a Python "
                     "function of your own that gives rewards. It is called as in TRL, with prompts, completions, "
                     "completion_ids, answer and the columns of your file, and returns a number or None for each "
                     f"completion. May be repeated; also accepts {', '.join(reward_terms.BUILT_IN)}")
    sub.add_argument("--environment", metavar="FILE:CLASS", help="a Python class of your own with which the model "
                     "plays episodes of several turns: reset(row) and step(text), or the methods of TRL's "
                     "environment_factory or of verl's BaseInteraction")
    sub.add_argument("--reward-model", metavar="MODEL", help="rewards from a reward model: the folder or hub id of a "
                     "Hugging Face sequence classifier with one score, or a run of the algorithm reward_model")
    sub.add_argument("--judge", metavar="URL", help="rewards from a language model that grades answers, at an address "
                     f"in the form of OpenAI's API; its key is read from {KEY}")
    sub.add_argument("--judge-model", metavar="NAME", help="the judge's model at that address")
    sub.add_argument("--judge-instruction", metavar="TEXT", help="the judge's instruction, such as: Is every step of "
                     "the answer correct?")


def knobs_of(options: argparse.Namespace) -> dict[str, str]:
    """The knobs that these options set; none without them. The functions are registered in this process. Raises
    LabError if there is no such function or judge, or they do not fit together."""
    given = {"reward_model": options.reward_model, "judge_model": options.judge_model,
             "judge_instruction": options.judge_instruction,
             "judge_url": None if options.judge is None else judge.allow(options.judge)}
    found = {key: value for key, value in given.items() if value is not None}
    if options.environment:
        found["environment"] = own_reward.register(options.environment, own_reward.ENVIRONMENT)
    if options.judge is None and ("judge_model" in found or "judge_instruction" in found):
        raise LabError("--judge-model and --judge-instruction need a judge: give its address as well, by "
                       "--judge URL.")
    weighed = [own_reward.weighed(word) for word in options.reward]
    named = {own_reward.register(place): weight for place, weight in weighed}
    if len(named) < len(weighed):
        raise LabError("A --reward is named twice: name each once, and give it a larger weight.")
    others = [source for source, value in ((REWARD_MODEL, options.reward_model), (JUDGE, options.judge)) if value]
    if len(others) == 1 and not named:
        return {"reward_source": others[0], **found}
    for source in others:
        named.setdefault(source, 1.0)
    if not named:
        return found
    weights = "" if set(named.values()) == {1.0} else " ".join(map(shown, named.values()))
    return {"reward_source": reward_terms.SOURCE, "reward_function": JOIN.join(named), "reward_weights": weights,
            **found}


def register(words: Sequence[str], run: RunRow) -> None:
    """Have this process know the functions of a run that is resumed. Raises LabError where one is not the run's."""
    there = [term.key for term in reward_terms.of(run.spec.knobs)]
    if words and not there:
        raise LabError(f"The rewards of {run.id} do not come from a function: leave --reward out.")
    for word in words:
        key = own_reward.register(own_reward.weighed(word)[0])
        if key not in there:
            raise LabError(f"The rewards of {run.id} come from {JOIN.join(there)}, not {key}: give exactly that file, "
                           "or fork the run with another one.")


def check(spec: RunSpec) -> None:
    """Check before a run that its rows have the columns that its reward functions ask for. Raises LabError if one is
    missing."""
    if terms := reward_terms.of(spec.knobs):
        columns = reward_call.columns_of(make_task(spec.task_row, spec.knobs, spec.data))
        reward_call.check_columns(terms, columns)
