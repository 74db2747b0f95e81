"""The commands `export`, in all its forms, and `replay`, which runs a capsule again."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict

from labcore.catalog.metrics import METRICS
from labcore.cli.adding import Add
from labcore.cli.commands import check_out
from labcore.cli.page_code import page_code
from labcore.cli.terminal import Progress
from labcore.errors import LabError, os_reason
from labcore.exports.capsules import packing
from labcore.exports.capsules.replay import Replayed, replay
from labcore.exports.folder import export_run
from labcore.exports.handover.plan import plan_of
from labcore.exports.handover.tools import TOOLS, tool
from labcore.runs.files import atomic
from labcore.runs.files.paths import path_of
from labcore.runs.spec.run_spec import DEVICES
from labcore.runs.store.store import Store
from labcore.runs.traces import AXES
from labcore.workers.training import OnRecord

DIFFERS, NO_ANSWER = 1, 2  # exit statuses


def add_to(add: Add) -> None:
    """Add both commands to the parser by its `add(name, command, help)`."""
    away = add("export", export, "write a run's metrics, events, knobs, spec and checkpoint into a folder; or write "
               "one HTML file of runs, figures, a capsule or a script")
    away.add_argument("runs", nargs="+", metavar="RUN", help="several only with --html or --figures")
    away.add_argument("--out", metavar="PATH", help="a folder; with --capsule a zip file, with --to a script (default: "
                      "print it)")
    away.add_argument("--tensorboard", action="store_true", help="also write the metrics for TensorBoard")
    away.add_argument("--best", action="store_true", help="the best checkpoint by held-out rows, in place of the "
                      "newest")
    away.add_argument("--light", action="store_true", help="with --capsule: without weights and samples, which the "
                      "replay makes again; for runs of a built-in model that are no forks")
    instead = away.add_mutually_exclusive_group()
    instead.add_argument("--capsule", action="store_true", help="write one zip that replay can run again and check")
    instead.add_argument("--to", choices=list(TOOLS), help="write a script that trains the same with another tool")
    instead.add_argument("--html", metavar="FILE", help="write one HTML file that shows the runs without a server")
    instead.add_argument("--figures", metavar="DIR", help="draw the charts for print, as SVG and PNG in one-column and "
                         "two-column width, with captions")
    away.add_argument("--axis", choices=list(AXES), help="with --figures: the horizontal axis (default: step)")
    away.add_argument("--smoothing", type=float, metavar="S", help="with --figures: smoothing of the lines, from 0 "
                                                                   "(default) to below 1")

    again = add("replay", run_again, "run a capsule again and compare every number of every step, bit for bit")
    again.add_argument("capsule", metavar="CAPSULE", help="the zip file that export --capsule wrote")
    again.add_argument("--steps", type=int, metavar="N", help="only up to the step N")
    again.add_argument("--device", choices=DEVICES, help="run it on another device")
    again.add_argument("--model", metavar="FOLDER", help="the model, where it was too large for the capsule")
    again.add_argument("--json", action="store_true", help="print one JSON object")


def export(options: argparse.Namespace) -> int:
    """Write a run's files, its capsule, a script for another tool, or runs as one HTML file or as figures."""
    _check(options)
    store = Store()
    if options.html:
        return _write_html([store.run(run).id for run in options.runs], options.html)
    if options.figures:
        from labcore.exports import figures  # brings matplotlib in, which the other commands do without

        written = figures.write(store, options.runs, options.figures, options.axis or "step", options.smoothing or 0.0)
        print("\n".join(map(str, written)))
        return 0
    [run] = options.runs
    if options.to:
        return _write_script(tool(options.to).script(plan_of(store, run)), options.out)
    if not options.out:
        raise LabError("The output is missing: give --out a folder, or with --capsule the name of a zip file.")
    if options.capsule:
        print(packing.write(store, run, options.out, options.light))
        return 0
    check_out(path_of(options.out))
    print(export_run(store, run, options.out, tensorboard=options.tensorboard, merged=True, best=options.best))
    return 0


def _check(options: argparse.Namespace) -> None:
    """Raises LabError where options contradict each other."""
    instead = next((f"--{name}" for name in ("capsule", "to", "html", "figures") if getattr(options, name)), "")
    for name in ("tensorboard", "best"):
        if getattr(options, name) and instead:
            raise LabError(f"--{name} works only when a folder is exported, not with {instead}: export twice.")
    if options.light and not options.capsule:
        raise LabError("--light needs --capsule: give both.")
    if options.out and instead in ("--html", "--figures"):
        raise LabError(f"{instead} names its own output: omit --out.")
    if instead != "--figures" and (options.axis or options.smoothing is not None):
        raise LabError("--axis and --smoothing need --figures: omit them.")
    if len(options.runs) > 1 and instead not in ("--html", "--figures"):
        raise LabError("Only --html and --figures take several runs: export one run after the other.")


def _write_html(runs: Sequence[str], file: str) -> int:
    """Have the page's code write the shared file, in a process of its own: the engine does not import it."""
    command = [sys.executable, "-P", str(page_code() / "share" / "__main__.py"), *runs, str(path_of(file))]
    status = subprocess.run(command, check=False).returncode
    if not status:
        print(file)
    return status


def _write_script(script: str, out: str | None) -> int:
    if not out:
        print(script, end="")
        return 0
    try:
        atomic.write_output(path_of(out), lambda path: path.write_text(script, encoding="utf-8"))
    except OSError as error:
        raise LabError(f"The script {out} cannot be written ({os_reason(error)}): choose another place.") from error
    print(out)
    return 0


def run_again(options: argparse.Namespace) -> int:
    """Replay a capsule. Returns 0 if every number is the same, 1 if one is not, 2 if that cannot be found out."""
    lines: list[Progress] = []

    def watch(store: Store) -> OnRecord:
        lines.append(Progress(store, quiet=options.json))
        return lines[0].show

    try:
        result = replay(options.capsule, options.steps, model=options.model, device=options.device, watch=watch)
    except LabError as error:
        print(f"labcore: {error}", file=sys.stderr)
        return NO_ANSWER
    finally:
        for line in lines:
            line.close()
    if options.json:
        print(json.dumps(asdict(result) | {"matches": result.matches}, ensure_ascii=False))
    else:
        print(in_words(result))
    return 0 if result.matches else DIFFERS


def in_words(result: Replayed) -> str:
    """The result as a person would say it."""
    passed = ""
    if result.overtaken:
        passed = (f"\n{len(result.overtaken)} steps ({result.overtaken[0]} to {result.overtaken[-1]}) were logged "
                  "before the run went back and changed a knob: they were not compared.")
    found = result.difference
    if found is None:
        return f"{result.run} matches bit for bit: {result.steps:,} steps × {result.metrics} metrics.{passed}"
    if not found.metric:
        text = f"the replay ended before step {found.step:,}"
    else:
        label = METRICS[found.metric].label if found.metric in METRICS else found.metric
        text = (f"{label} ({found.metric}) is {_shown(found.found)} at step {found.step:,}, and the capsule has "
                f"{_shown(found.expected)}")
    same = "no known difference of the lab or the machine, so the run is not repeatable here"
    cause = f"likely because of {'; '.join(result.causes)}" if result.causes else same
    return f"{result.run} does not match: {text}.\nThe steps before it match. The cause: {cause}.{passed}"


def _shown(value: float | None) -> str:
    return "missing" if value is None else repr(value)
