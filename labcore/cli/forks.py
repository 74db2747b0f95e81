"""The command `fork`: a run that begins where another one was."""

from __future__ import annotations

import argparse
import sys

from labcore.cli import commands, rewarding
from labcore.cli.commands import assignments, check_out, labels_of, train
from labcore.runs.files.paths import path_of
from labcore.runs.fork import fork_spec, optimizer_note
from labcore.runs.store.store import Store
from labcore.workers import sinks


def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of `fork`."""
    sub.add_argument("run", help="the run to fork")
    sub.add_argument("--step", type=int, help="where to begin: a step that has a checkpoint (default: the newest)")
    sub.add_argument("--algorithm", help="continue with another algorithm of the same kind")
    sub.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", dest="knobs", help="may be repeated")
    sub.add_argument("--labels", metavar="FILE", help="of a reward model: learn from these labelled pairs too")
    rewarding.add_options(sub)
    sub.add_argument("--fresh", action="store_true", help="fresh random numbers (default: common random numbers, the "
                     "parent's, so that only your settings differ)")
    sub.add_argument("--seed", type=int, help="the seed of the fresh random numbers")
    sub.add_argument("--steps", type=int, help="the last step (default: the parent's number of steps)")
    commands.add_log(sub)
    sub.add_argument("--out", metavar="DIR", help="also export the result here")
    sub.add_argument("--json", action="store_true", help="print one JSON object at the end")


def fork(options: argparse.Namespace) -> int:
    """Train a fork of a run to its end."""
    store = Store()
    spec = fork_spec(store, options.run, options.step, algorithm=options.algorithm,
                     knobs=rewarding.knobs_of(options) | assignments(options.knobs) | labels_of(options),
                     twin=not options.fresh, seed=options.seed, steps=options.steps)
    rewarding.check(spec)
    log = sinks.checked(options.log)
    if options.out:
        check_out(path_of(options.out))
    assert spec.parent is not None, "it is a fork"
    if note := optimizer_note(*spec.parent):
        print(note, file=sys.stderr)
    run_id = store.create(spec, mine=True)
    sinks.ask(store, run_id, log)
    return train(store, run_id, options.json, options.out)
