"""The command `judge`: score the stored completions of a run with another verifier or reward."""

from __future__ import annotations

import argparse
import json
from typing import Any

from labcore.analysis import judge_again
from labcore.analysis.judge_again import JUDGE, KNOBS, MOST, TASK
from labcore.catalog.llm.tasks import VERIFIERS
from labcore.cli.adding import Add
from labcore.cli.comparing import lay_out
from labcore.cli.terminal import computed
from labcore.errors import LabError, cut, quoted
from labcore.runs.spec.judge_address import KEY
from labcore.runs.store.store import Store
from labcore.tasks import judge, own_reward

EXAMPLES = 5  # completions that are printed


def add_to(add: Add) -> None:
    """Add the command to the parser by its `add(name, command, help)`."""
    sub = add("judge", judged, "score the stored completions of a run with another verifier or reward, to detect "
              "reward hacking")
    sub.add_argument("run", metavar="RUN")
    sub.add_argument("--by", required=True, metavar="NAME|FILE.py|RUN", help=f"{TASK} (the verifier of the run's "
                     f"task), a verifier ({', '.join(VERIFIERS)}), your Python file with a reward function "
                     f"(FILE.py or FILE.py:function), a run that trained a reward model, the folder or hub id "
                     f"of a published one, or {JUDGE}")
    sub.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", help="a setting of the verifier, the "
                     f"judge or a published process reward model: {', '.join(KNOBS)}")
    sub.add_argument("--judge", metavar="URL", help="the address of the judge, an OpenAI-compatible API; its key is "
                     f"read from {KEY}")
    sub.add_argument("--most", type=int, default=MOST, metavar="N", help="score about N of the stored completions, of "
                     f"evenly spaced steps (default {MOST})")
    sub.add_argument("--json", action="store_true", help="print JSON")


def judged(options: argparse.Namespace) -> int:
    """Print the result, the means by step, and completions whose scores differ. The result is saved with the run."""
    Store().run(options.run)  # an unknown name must not become a path
    if options.most < 1:
        raise LabError(f"--most is {options.most}: give a number of completions from 1.")
    knobs = dict(map(_setting, options.set)) | ({"judge_url": judge.allow(options.judge)} if options.judge else {})
    by = own_reward.register(options.by) if ".py" in options.by and options.by not in VERIFIERS else options.by
    found = computed(judge_again.spec_for(options.run, by, knobs, options.most))
    print(json.dumps(found, ensure_ascii=False, indent=2) if options.json else "\n".join(_lines(found)))
    return 0


def _setting(word: str) -> tuple[str, Any]:
    key, equals, value = word.partition("=")
    if not equals or key not in KNOBS:
        raise LabError(f"--set {quoted(word)} cannot be used: write KNOB=VALUE, with one of {', '.join(KNOBS)}.")
    if isinstance(KNOBS[key], str):
        return key, value
    if not value.isdecimal():
        raise LabError(f"--set {quoted(word)} cannot be used: {key} must be a whole number.")
    return key, int(value)


def _lines(found: dict[str, Any]) -> list[str]:
    rows = [["step", "n", "reward [95 %]", f"{found['name']} [95 %]"]]
    rows += [[f"{each['step']:,}", f"{each['n']:,}", _mean(each["reward"]), _mean(each["score"])]
             for each in found["steps"]]
    shown = [[f"{each['step']:,}", f"{each['times']}×", f"{each['reward']:g}", f"{each['score']:g}",
              cut(repr(each["prompt"])), cut(repr(each["text"]))] for each in found["apart"][:EXAMPLES]]
    head = ["", "Completions on which the two scores differ most"] if shown else []
    return [found["sentence"], judge_again.about(found), "", *lay_out(rows), *head,
            *(lay_out([["step", "times", "reward", found["name"], "prompt", "completion"], *shown]) if shown else [])]


def _mean(each: dict[str, Any]) -> str:
    interval = "" if each["low"] is None else f" [{each['low']:z.2f}, {each['high']:z.2f}]"
    return f"{each['mean']:z.3f}{interval}"
