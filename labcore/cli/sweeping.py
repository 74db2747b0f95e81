"""The commands `sweep` and `sweeps`: many runs at once, through the launcher, and the table of their results."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from labcore.analysis.compare.loading import load
from labcore.analysis.compare.ranking import LARGE, Ends, standing
from labcore.analysis.compare.table import compare
from labcore.analysis.time_left import Progress, progress
from labcore.catalog.knob import shown
from labcore.catalog.metrics import METRICS
from labcore.cli.adding import Add
from labcore.cli.commands import assignments, spec_of, summary, warn
from labcore.cli.comparing import compare_runs
from labcore.errors import LabError, quoted
from labcore.runs import halving, places, titles
from labcore.runs import sweep as engine
from labcore.runs.halving import Halving
from labcore.runs.lists.marks import project_name
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import ACTIVE, GOING
from labcore.runs.store.store import Store
from labcore.workers.executors import choice
from labcore.workers.launcher import Launcher

POLL_SECONDS = 0.2
SAY_SECONDS = 2.0  # a sweep of thousands says more seldom how it stands
BEST = 10  # settings of a large sweep that are named
WAKE_SECONDS = 2.0  # a place that becomes free is taken at once; this only finds out whether the supervisor lives


def add_to(add: Add, add_run: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add both commands to the parser by its `add(name, command, help)`; `add_run(sub)` adds what a run is made of."""
    many = add("sweep", sweep, "run a few knobs at several values with several seeds, and print the table")
    add_run(many)
    many.add_argument("--sweep", action="append", default=[], metavar="KNOB=VALUE,VALUE,…", dest="axes",
                      help=f"a knob and its values; may be given up to {engine.MOST_AXES} times")
    many.add_argument("--seeds", default="0,1,2", metavar="SEED,SEED,…", help="default: 0,1,2")
    many.add_argument("--early-stopping", nargs="?", const="", metavar="METRIC", help="stop the worse runs early, by "
                      "successive halving (Optuna's); METRIC: by which metric (default: that of the first chart)")
    many.add_argument("--min-steps", type=int, metavar="N",
                      help="after how many steps a run is first judged (default: a ninth of all)")
    many.add_argument("--reduction-factor", type=int, metavar="N",
                      help="of N runs the best one continues at each judgement (default: 3)")
    many.add_argument("--name", default="", help="name of the sweep in lists and on the page Compare")
    many.set_defaults(seed=0)
    _add_report(many)

    some = add("sweeps", sweeps, "list the sweeps, newest first; or show, cancel, resume or name one of them")
    some.add_argument("sweep", nargs="?", metavar="SWEEP")
    some.add_argument("--all", action="store_true", help="list the sweeps of lessons and studies as well")
    what = some.add_mutually_exclusive_group()
    what.add_argument("--cancel", action="store_true", help="stop its queued and running runs")
    what.add_argument("--resume", action="store_true", help="resume its stopped runs, here in the foreground")
    what.add_argument("--name", help="name the sweep; an empty name removes it")
    what.add_argument("--status", action="store_true", help="only its progress and the estimated time left")
    _add_report(some)


def _add_report(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--metric", help="the table's metric (default: the first chart)")
    sub.add_argument("--json", action="store_true", help="print JSON")


def sweep(options: argparse.Namespace) -> int:
    """Run a sweep to its end."""
    check_metric(options.metric)
    choice.check()  # a bad setting is refused before anything is queued
    specs = engine.grid(spec_of(options), axes_of(options.axes), seeds_of(options.seeds))
    early = early_of(options, specs[0])
    if early:
        halving.check(early, specs)
    warn(*specs)
    store = Store()
    return run_all(store, engine.queue(store, specs, early=early, name=project_name(options.name, "sweep"),
                                       project=project_name(options.project)), options)


def early_of(options: argparse.Namespace, spec: RunSpec) -> Halving | None:
    """The early stopping that the options ask for; None without any. Raises LabError if they are incomplete."""
    if options.early_stopping is None:
        if options.min_steps is not None or options.reduction_factor is not None:
            raise LabError("--min-steps and --reduction-factor belong to early stopping: give --early-stopping as "
                           "well.")
        return None
    usual = halving.usual(spec)
    given = {"metric": options.early_stopping or None, "min_steps": options.min_steps,
             "factor": options.reduction_factor}
    return replace(usual, **{key: value for key, value in given.items() if value is not None})


def axes_of(words: Sequence[str]) -> dict[str, list[str]]:
    """{"beta": ["0", "0.1"]} from ["beta=0,0.1"]. Raises LabError where a word is no such list."""
    found: dict[str, list[str]] = {}
    for word in words:
        [(key, values)] = assignments([word]).items()
        if key in found:
            raise LabError(f"The knob {key} is swept twice: give all its values in one --sweep.")
        found[key] = [value.strip() for value in values.split(",")]
    return found


def seeds_of(text: str) -> list[int]:
    """[0, 1] from "0,1". Raises LabError where the text is no such list."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError as error:
        raise LabError(f"--seeds is {quoted(text)}: write whole numbers with commas, for example 0,1,2.") from error


def check_metric(metric: str | None) -> None:
    """Raises LabError where there is no such metric: before the training, not after."""
    if metric and metric not in METRICS:
        raise LabError(f"There is no metric {quoted(metric)}: see the header of an exported metrics.csv.")


def run_all(store: Store, sweep_id: str, options: argparse.Namespace) -> int:
    """Have the queued runs of a sweep started, wait for their end, print the table. Returns 0 if all finished or were
    stopped early.

    Ctrl-C stops them all; they can be resumed.
    """
    print(f"sweep {sweep_id}", file=sys.stderr)
    launcher = Launcher(store, sweep=sweep_id)
    try:
        wait(store, sweep_id, launcher)
    except KeyboardInterrupt:
        engine.cancel(store, sweep_id)
        print(f"labcore: stopping after the current steps; to resume: python -m labcore sweeps {sweep_id} --resume",
              file=sys.stderr)
        raise
    finally:
        launcher.close()
    report(store, sweep_id, options)
    return 0 if all(run.early or run.state == "finished" for run in engine.sweep(store, sweep_id).runs) else 1


def wait(store: Store, sweep_id: str, launcher: Launcher) -> set[str]:
    """Wait until no run of a sweep is going any more, and say how they stand meanwhile, and where none goes what they
    wait for. Returns their states."""
    said: dict[str, int] = {}
    reason = ""
    woken = printed = -math.inf
    while True:
        states = store.tally(sweep_id)
        over = not set(states) & set(ACTIVE)
        pause = SAY_SECONDS if sum(states.values()) > LARGE else 0
        if states != said and (over or time.monotonic() - printed > pause):
            print(f"{sweep_id}: {progress_words(far(store, sweep_id))}", file=sys.stderr)
            said, printed = states, time.monotonic()
        if over:
            return set(states)
        if time.monotonic() - woken > WAKE_SECONDS:
            why = "" if set(states) & set(GOING) else _first_in_line(store, sweep_id)
            if why not in ("", reason):
                print(f"{sweep_id}: {why}", file=sys.stderr)
            reason = why
            launcher.wake()
            woken = time.monotonic()
        time.sleep(POLL_SECONDS)


def _first_in_line(store: Store, sweep_id: str) -> str:
    """The sentence that names the runs for which the next queued run of a sweep waits; empty if there is nothing to
    say."""
    first = list(store.queued(sweep_id))[:1]
    found = list(store.runs_named(first).values())  # none where it has just been deleted
    going = places.going(store, found)
    return "".join(places.waiting_sentence(run.message, places.holders(run, going)) for run in found)


def far(store: Store, sweep_id: str) -> Progress:
    """The progress of the runs of a sweep."""
    return progress(store.sweep_runs(sweep_id), stops_early=engine.early_stopping(store, sweep_id) is not None)


def progress_words(found: Progress) -> str:
    """The progress of a sweep, in a line: "12 finished, 2 running, 86 waiting; 640 of 5,000 steps; about 0:12:05 left
    …"."""
    counts = ", ".join(f"{count:,} {name}" for name, count in found.counts.items())
    left = "" if found.left is None else (f"; {'at most' if found.at_most else 'about'} "
                                          f"{timedelta(seconds=round(found.left))} left, estimated {found.basis}")
    spared = f", {found.spared:,} spared by early stopping" if found.spared else ""
    return f"{counts}; {found.steps:,} of {found.of:,} steps{spared}{left}"


def report(store: Store, sweep_id: str, options: argparse.Namespace) -> None:
    """Print the runs of a sweep and the table of those that have made a step."""
    found = engine.sweep(store, sweep_id)
    ids = [run.id for run in found.runs if run.step] if len(found.runs) <= LARGE else []
    if options.json:
        table = compare(load(store, ids), options.metric).to_json() if ids else None
        print(json.dumps(described(store, found) | {"table": table}, ensure_ascii=False, indent=2))
        return
    print(f"{found.id}{f' ({found.name})' if found.name else ''}: {progress_words(far(store, found.id))}")
    if early := engine.early_stopping(store, found.id):
        print(early.words())
    if why := engine.unjudged(store, found.id):
        print(why)
    going = places.going(store, found.runs)
    for run in found.runs[:LARGE]:
        said = places.waiting_sentence(run.message, places.holders(run, going))
        why = f"  {titles.with_titles(said, lambda: store)}" if run.state not in ("finished", "running") else ""
        print(f"{run.id:<24} {titles.title(run):<24} {run.state:<12} {run.step:>6}/{run.spec.steps:<6} "
              f"{engine.label(run.spec, list(found.axes))}{why}")
    if len(found.runs) > LARGE:
        print(f"and {len(found.runs) - LARGE:,} more: --json lists all, the page Compare shows their results\n")
        print("\n".join(best_words(store, found, options.metric)))
    if ids:
        print()
        compare_runs(argparse.Namespace(runs=ids, project="", metric=options.metric, axis=None, baseline=None,
                                        json=False))


def best_words(store: Store, found: engine.Sweep, metric: str | None) -> list[str]:
    """The best settings of a large sweep, a line each, in the order of its page."""
    now = standing(store, found, Ends(store), metric or "")
    lines = [f"{now.metric.label}, the mean over the seeds that finished:"]
    for place, setting in enumerate(now.ranked[:BEST], start=1):
        point = ", ".join(f"{axis.title} {shown(value)}" for axis, value in zip(now.axes, setting.values, strict=True)
                          if value is not None)
        mean = "none finished" if setting.mean is None else f"{setting.mean.mean:z.4g}"
        ended = f"{setting.mean.count if setting.mean else 0} of {len(setting.runs)} finished"
        rank = place if setting.whole and now.metric.better else "–"
        lines.append(f"{rank:>3}  {mean:<14} {ended}  {point}")
    return lines + ([f"Left out: runs in which a knob was changed mid-run ({now.aside:,})."] if now.aside else [])


def described(store: Store, found: engine.Sweep) -> dict[str, Any]:
    """A sweep as data for programs."""
    early = engine.early_stopping(store, found.id)
    return {"sweep": found.id, "name": found.name, "axes": found.axes, "seeds": found.seeds, "states": found.states,
            "progress": vars(far(store, found.id)), "early_stopping": early and vars(early),
            "runs": [summary(store, run) | {"knobs": {key: run.spec.knobs.get(key) for key in found.axes}}
                     for run in found.runs]}


def sweeps(options: argparse.Namespace) -> int:
    """List the sweeps, or see to one of them."""
    check_metric(options.metric)
    store = Store()
    store.reconcile()
    if options.sweep is None:
        if options.cancel or options.resume or options.status or options.name is not None:
            raise LabError("The sweep is missing: give its name; python -m labcore sweeps lists them.")
        return _list(store, options.json, options.all)
    if options.name is not None:
        store.name_sweep(engine.sweep(store, options.sweep).id, project_name(options.name, "sweep"))
        return 0
    if options.cancel:
        stopped = engine.cancel(store, options.sweep)
        live = sum(bool(run.pending) for run in store.runs_named(stopped).values())
        later = f"{live} {'runs stop after their' if live != 1 else 'run stops after its'} current step"
        parts = [*([f"{len(stopped) - live} runs stopped"] if len(stopped) > live else []), *([later] if live else [])]
        print(f"{options.sweep}: {', '.join(parts) or 'no run is queued or running'}.")
        return 0
    if options.resume:
        if not engine.resume(store, options.sweep) and not engine.sweep(store, options.sweep).active:
            raise LabError(f"The sweep {options.sweep} has no run that was stopped or interrupted: there is nothing "
                           "to resume.")
        return run_all(store, options.sweep, options)
    if options.status:
        return _status(store, options.sweep, options.json)
    report(store, options.sweep, options)
    return 0


def _status(store: Store, sweep_id: str, as_json: bool) -> int:
    found = far(store, engine.sweep(store, sweep_id).id)
    why = engine.unjudged(store, sweep_id)
    if as_json:
        print(json.dumps({**vars(found), "early_stopping_off": why}, indent=2))
    else:
        print("\n".join(filter(None, (f"{sweep_id}: {progress_words(found)}", why))))
    return 0


def _list(store: Store, as_json: bool, every: bool) -> int:
    found = engine.sweeps(store, apart=every)
    if as_json:
        print(json.dumps([described(store, each) for each in found], ensure_ascii=False, indent=2))
        return 0
    if not found:
        print("No sweeps yet: python -m labcore sweep --algorithm grpo --task sort --sweep beta=0,0.05 --seeds 0,1,2")
    for each in found:
        spec = each.runs[0].spec
        axes = " × ".join([*(f"{key} {', '.join(map(str, values))}" for key, values in each.axes.items()),
                           f"{len(each.seeds)} seeds"])
        states = ", ".join(f"{count} {state}" for state, count in each.states.items())
        name = f"{each.name}: " if each.name else ""
        print(f"{each.id:<16} {name}{spec.algorithm} on {spec.task}: {axes}  ({states})")
    return 0
