"""The common parts of the shell scripts for verl, OpenRLHF and ms-swift: quoting, the beginning, files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any

from labcore.catalog import choices
from labcore.exports.handover.plan import Line, Plan
from labcore.exports.handover.remarks import comment, remarks
from labcore.exports.handover.rules import choices_of

_HEAD = '''#!/usr/bin/env bash
# {label} on "{task}" with {tool} {version}, with the settings of the run {run}
# of RL Visual Lab as they were at its end.
#
#     pip install {needs}
#     MODEL={model} GPUS=1 bash {run}-{package}.sh
#
# "{model}" is the folder of that name in the run's export: what it has learnt. Give the model that the run
# began with to do the run again, or any causal language model of the Hugging Face hub to do the same with
# that one. The lab's own tiny models are smaller than what {tool} is made for: vLLM may refuse them.
#
# Every setting is one that {source} of that version has, and that version
# accepted the settings of every algorithm of the lab. Unlike with TRL, the lab's tests do not train with it.
#
{remarks}
'''
_BEGIN = '''
set -euo pipefail
MODEL=${{MODEL:-{model}}}
GPUS=${{GPUS:-1}}
'''
_FILE = '''
cat > {name} <<'PYTHON'
{code}
PYTHON
'''


def head(plan: Plan, found: list[Line], tool: str, package: str, version: str, needs: str, source: str) -> str:
    """The comments on top: what this is, how to start it with what it `needs`, and which knobs are not as they were."""
    return _HEAD.format(label=plan.spec.row.label, task=plan.spec.task, tool=tool, version=version, run=plan.run,
                        package=package, needs=needs, model=plan.model, source=source, remarks=remarks(found, tool))


def begin(plan: Plan) -> str:
    """The first commands."""
    return _BEGIN.format(model=plan.model)


def file(name: str, code: str) -> str:
    """A command that writes a file of Python."""
    return _FILE.format(name=name, code=code.strip("\n"))


def no_episodes(found: list[Line], tool: str, version: str) -> str:
    """Comments instead of a script, for a run whose model calls the methods of the user's class as tools."""
    said = comment(f"The model calls the methods of your class as tools, as in TRL. {tool} {version} calls tools "
                   "differently, so it has no script for this run: use the script for TRL, or write a class with "
                   "reset(row) and step(text), whose episodes this tool can play.")
    return f"{said}\n#\n{remarks(found, tool)}\n"


def quoted(word: object) -> str:
    """A word as the shell takes it; the variables of the script stay what they stand for."""
    text = str(word)
    return f'"{text}"' if re.search(r"\$(MODEL|GPUS|TEMPLATE)\b", text) else shlex.quote(text)


def array(rows: Iterable[tuple[str, str]]) -> str:
    """A bash array of words, each line with a comment where it has one."""
    rows = list(rows)
    width = max(len(words) for words, _ in rows if len(words) < 72)
    body = "\n".join(f"    {words:<{width}}  # {said}" if said else f"    {words}" for words, said in rows)
    return f"\nsettings=(\n{body}\n)\n"


# ---------------------------------------------------------------- whitening
# Advantages whitened over the batch: in verl, OpenRLHF and ms-swift an estimator does it, with a baseline of its own.

def whitens(plan: Plan, tool: str) -> bool:
    """Whether an estimator of the tool stands for how the run normalises advantages that are compared first."""
    chosen = choices.NORMALISATION[str(plan.get("normalisation", "none"))]
    return chosen.key != "none" and chosen.there(tool) is not None


def against(plan: Plan) -> str:
    """Of what the run's baseline is: "batch" or "group"; empty where it is neither's."""
    return choices.ADVANTAGE[str(plan["advantage"])].against


def normalisation(plan: Plan, value: Any, tool: str, option: str, estimator: str | None) -> Line:
    """The line of the knob `normalisation` in a tool: the `estimator` that whitens."""
    line = choices_of(choices.NORMALISATION, tool, f"see {option}")(plan, value)
    return Line("", value, {option: estimator}, note=line.note) if whitens(plan, tool) else line


def advantage(value: Any, of: str, tool: str) -> Line:
    """The line of the advantage if the tool's estimator subtracts the mean of each `of`: "batch" or "group"."""
    chosen = choices.ADVANTAGE[str(value)]
    exact = chosen.exact and chosen.against == of
    return Line("", value, {}, built_in=exact, note="" if exact else
                f"{tool}'s estimator for normalisation subtracts the {of}'s mean instead")
