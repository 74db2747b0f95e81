"""The rewards of an online run as what TRL's trainers take as reward functions."""

from __future__ import annotations

from pathlib import PurePath

from labcore.catalog import choices, reward_terms
from labcore.catalog.reward_terms import JUDGE, REWARD_MODEL
from labcore.exports.handover.plan import REWARD_RULES, Line, Plan, Rules, built_in, comment
from labcore.spec.model_names import is_published, members

_FUNCTION = '''

def reward(completions: list, answer: list[str], **_) -> list[float]:
    """What TRL calls with the completions and the column `answer` of their rows."""
    return [score({said}, right) for text, right in zip(completions, answer)]
'''
_ABSENT = '''

def {name}(completions: list, **_) -> list[float]:
    """The rewards of the lab's {name}, which this script does not bring."""
    raise SystemExit("Write {name}() here: a number for each completion.")
'''


def functions(plan: Plan) -> tuple[str, str]:
    """The code of the run's reward functions, and the name by which the trainer is given them."""
    named = reward_terms.of(plan.spec.knobs)
    if not named:
        found, code = _other(plan, str(plan["reward_source"]))
        return code, found
    terms = [_other(plan, term.key) if not term.function else
             (f"import_module({PurePath(term.file).stem!r}).{term.function}", "") for term in named]
    files = dict.fromkeys(term.file for term in named if term.function)
    listed = "\n".join(f"    {found}," for found, _ in terms)
    own = comment(f"Your own functions: put {' and '.join(files)} beside this script.") if files else ""
    imported = "from importlib import import_module\n\n" if files else ""
    code = "".join(dict.fromkeys(code for _, code in terms))
    return f"{code}\n\n{imported}{own}\nREWARDS = [\n{listed}\n]\n", "REWARDS"


def _other(plan: Plan, source: str) -> tuple[str, str]:
    """The name of a source that is no function of the user's, and its code."""
    if source == REWARD_MODEL and (published := _published(plan)):
        return repr(published), ""
    if source == JUDGE or (source == REWARD_MODEL and plan["reward_source"] != source):
        return source, _ABSENT.format(name=source)
    return "reward", _FUNCTION.format(said='text[0]["content"]' if plan.chat else "text")


def _published(plan: Plan) -> str:
    """The folder or hub id of the run's reward model, which TRL loads by itself; empty where it has no such one."""
    models = members(str(plan["reward_model"]))
    return models[0] if len(models) == 1 and is_published(models[0]) else ""


def _source(plan: Plan, value: str) -> Line:
    here = value == reward_terms.SOURCE or (value == REWARD_MODEL and _published(plan))
    return (built_in() if here else REWARD_RULES["reward_source"])(plan, value)


def _model(plan: Plan, value: str) -> Line:
    here = REWARD_MODEL in choices.sources_of(plan.spec.knobs) and _published(plan)
    return (built_in() if here else REWARD_RULES["reward_model"])(plan, value)


def _weights(plan: Plan, value: str) -> Line:
    count = len(reward_terms.of(plan.spec.knobs))
    return Line("", value, {"reward_weights": reward_terms.weights(value, count)} if count else {}, built_in=not count)


RULES: Rules = {**REWARD_RULES, "reward_source": _source, "reward_model": _model, "reward_function": built_in(),
                "reward_weights": _weights}
