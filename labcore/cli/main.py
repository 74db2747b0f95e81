"""Commands and their options. Every command is a function in `commands` that takes the parsed options."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

import labcore
from labcore.catalog.kinds import KINDS
from labcore.catalog.knob import suggestion
from labcore.catalog.llm.knobs import ROLLOUTS
from labcore.catalog.llm.tasks import VERIFIERS
from labcore.catalog.presets import PRESETS
from labcore.cli import (
    asking,
    benching,
    capsules,
    commands,
    comparing,
    costing,
    doctoring,
    environments,
    forks,
    judging,
    keeping,
    labelling,
    listing,
    mixing,
    models,
    previewing,
    publishing,
    rewarding,
    studying,
    sweeping,
    teaching,
    watching,
)
from labcore.cli.adding import Command
from labcore.cli.terminal import plain
from labcore.errors import ECHO, LabError, one_line, quoted
from labcore.runs.faults import disk_full, no_room
from labcore.runs.spec.run_spec import DEVICES
from labcore.runs.store.store import Store
from labcore.runs.titles import with_titles

_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)$", re.DOTALL)
_QUOTED = re.compile(rf"'([^']{{{ECHO},}})'")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status; a user's error is one sentence on standard error and status 1."""
    words = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(words)
    try:
        _check_words(words)
        with plain():
            status: int = options.command(options)
        sys.stdout.flush()
        return status
    except LabError as error:
        # a store that is not there, or is of an earlier version, is left as it is
        print(f"labcore: {with_titles(str(error), lambda: Store(reads=True), ids=True)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("labcore: interrupted.", file=sys.stderr)
        return commands.INTERRUPTED
    except BrokenPipeError:  # `list | head`: the reader has what it wanted; Python must not flush into it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if not disk_full(error):
            raise
        print(f"labcore: {no_room()}", file=sys.stderr)
        return 1


def _check_words(words: Sequence[str]) -> None:
    """Raises LabError where one has bytes that are no text: neither the store nor a spec could hold it."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise LabError(f"{quoted(word)} is not UTF-8: write it in UTF-8, or rename the file.") from error


class Parser(argparse.ArgumentParser):
    """An argument parser that is wrong in one sentence, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        if found := _CHOICE.search(message):  # argparse lists all choices, however many
            choices = re.findall(r"[^\s,']+", found[2])
            message = f"{message[:found.start()]}there is no {quoted(found[1])}: {suggestion(found[1], choices)[:-1]}"
        short = one_line(_QUOTED.sub(lambda word: quoted(word[1]), message))
        self.exit(2, f"labcore: {short}; see {self.prog} --help.\n")


@cache  # making it takes ten times as long as reading a command
def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    called = "rl-lab" if Path(sys.argv[0]).stem == "rl-lab" else "python -m labcore"
    top = Parser(called, description="RL Visual Lab without a browser.")
    top.add_argument("--version", action="version", version=f"RL Visual Lab {labcore.__version__}")
    adders = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(name: str, command: Command, help: str) -> argparse.ArgumentParser:
        sub = adders.add_parser(name, help=help, description=help)
        sub.set_defaults(command=command)
        return sub

    listing.add(add("list", listing.run, "algorithms, tasks, models and presets; with NAME one of them and its knobs"))

    run = add("run", commands.run, "train in the foreground; the page can watch it")
    _add_run(run)
    run.add_argument("--seed", type=int, default=0)
    commands.add_log(run)
    run.add_argument("--out", metavar="DIR", help="also export the result here")
    run.add_argument("--json", action="store_true", help="print one JSON object at the end")

    sweeping.add_to(add, _add_run)

    forks.add_options(add("fork", forks.fork, "continue from a checkpoint of a run with other knobs or another "
                                              "algorithm"))

    for commands_of in (keeping, previewing, models, mixing, capsules, comparing, doctoring, judging, costing,
                        benching, asking, labelling, teaching, publishing, studying, watching):
        commands_of.add_to(add)

    _add_play(add)
    _add_controls(add)
    return top


def _add_play(add: Callable[..., argparse.ArgumentParser]) -> None:
    play = add("play", commands.play, "play episodes with the policy of a maze or CartPole run, and print their "
               "returns")
    play.add_argument("run", help="the run's id, or the folder of an exported checkpoint")
    play.add_argument("--episodes", type=int, default=10)
    play.add_argument("--seed", type=int, default=0)
    play.add_argument("--best", action="store_true", help="the weights of the best evaluation, not the newest")
    play.add_argument("--json", action="store_true", help="print JSON, with every step of the first episode")


def _add_controls(add: Callable[..., argparse.ArgumentParser]) -> None:
    """The commands that steer a run."""
    for name, help in (("pause", "pause a running run"), ("step", "let a paused run make one step"),
                       ("stop", "stop a run; it keeps its checkpoint")):
        sub = add(name, commands.ask, help)
        sub.set_defaults(ask=name)
        sub.add_argument("run")

    resume = add("resume", commands.resume, "resume: a paused run where it runs, an ended one here in the foreground")
    resume.add_argument("run")
    resume.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", dest="knobs",
                        help="resume with another value; may be repeated")
    resume.add_argument("--reward", action="append", default=[], metavar="FILE:FUNCTION", help="a reward function that "
                        "the run was started with, if this lab no longer has the file; may be repeated")
    commands.add_log(resume)
    resume.add_argument("--json", action="store_true", help="print one JSON object at the end")

    change = add("set", commands.set_knobs, "change knobs of a running run")
    change.add_argument("run")
    change.add_argument("knobs", nargs="+", metavar="KNOB=VALUE")


def _add_run(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--kind", choices=list(KINDS), help="llm (the default: a language model), exact (one with exact "
                     "reference values, on a small problem), maze, "
                     "or cartpole (any Gymnasium environment)")
    learnt = sub.add_mutually_exclusive_group(required=True)
    learnt.add_argument("--algorithm", help="see: python -m labcore list; or the name of a saved mix, see: "
                        "python -m labcore mixes")
    learnt.add_argument("--preset", choices=list(PRESETS), metavar="PRESET", help="settings that show one effect, see "
                        "python -m labcore list; --task, --steps and --set override them")
    sub.add_argument("--mix", metavar="NAME", help="name of a mix of your own, which has every knob of the algorithm's "
                     "loop for --set")
    sub.add_argument("--task", help="see: python -m labcore list; follows from --prompts, --preferences, --text or "
                     "--maze; with --kind cartpole the id of an environment")
    environments.add_options(sub)
    sub.add_argument("--model", help="tiny, small, medium, a Hugging Face folder or hub id, or an "
                     "earlier run to start from: RUN, RUN@STEP for one of its checkpoints, or RUN@best for the best by "
                     "held-out rows")
    sub.add_argument("--steps", type=int, help="how many steps (default: the algorithm's)")
    sub.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", dest="knobs", help="may be repeated")
    sub.add_argument("--prompts", "--data", metavar="FILE", help="your own data: JSONL, JSON, CSV or Parquet, also "
                     "gzipped, in the layout of TRL, verl, OpenRLHF, GSM8K, MATH, alpaca or ShareGPT; or a dataset of "
                     "the Hugging Face hub, org/name:split")
    sub.add_argument("--map", metavar="NAME=FIELD[,…]", help="the file's names of the fields prompt, answer, chosen, "
                     "rejected, completion, label and system")
    sub.add_argument("--preferences", metavar="FILE", help="your own pairs: the same with prompt, chosen, rejected; "
                     "for KTO also with prompt, completion and label")
    sub.add_argument("--held-out", metavar="FILE", dest="held_out", help="a second file, in the layout of the first, "
                     "used for evaluation only; without it a share of your file is held out (--set held_out=0.1)")
    sub.add_argument("--labels", metavar="FILE", help="further pairs for training a reward model: JSONL "
                     "with prompt, chosen, rejected, or the name that the command label printed")
    sub.add_argument("--text", metavar="FILE", help="your own text: a plain text file in UTF-8")
    sub.add_argument("--maze", metavar="FILE", help="your own maze: JSON, as the maze page saves it")
    sub.add_argument("--verifier", choices=VERIFIERS, help="verifier that scores the answers to your own prompts")
    sub.add_argument("--rollouts", choices=ROLLOUTS, help="sampler of an online run's completions: the lab's engine "
                     "(default), or vLLM on an NVIDIA GPU")
    rewarding.add_options(sub)
    sub.add_argument("--project", default="", help="a label that groups runs in lists and comparisons")
    sub.add_argument("--device", default="auto", choices=DEVICES)
    sub.add_argument("--threads", type=int, help="torch threads (default: 1 for the built-in models, else all cores)")
