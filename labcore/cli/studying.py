"""The commands `study` and `studies`: claims of the literature, tested here by sweeps, and their verdicts."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from labcore.analysis import time_left
from labcore.analysis.estimate import MOST
from labcore.analysis.studies import plan, recorded
from labcore.analysis.studies.result import Result, needed, result
from labcore.analysis.studies.rows import STUDIES
from labcore.analysis.studies.study import Study
from labcore.analysis.studies.verdict import WORDS, interval_text
from labcore.analysis.studies.verdict import needed as needed_to_decide
from labcore.catalog.amounts import duration
from labcore.catalog.knob import suggestion
from labcore.cli.adding import Add
from labcore.cli.sweeping import wait
from labcore.errors import LabError, quoted
from labcore.llm.sizing import pace
from labcore.runs import jobs, sweep
from labcore.runs.files.paths import max_runs
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.store import Store
from labcore.workers.executors import choice
from labcore.workers.launcher import Launcher

EARLIER = 200  # runs that an estimate looks at


def add_to(add: Add) -> None:
    """Add both commands to the parser by its `add(name, command, help)`."""
    one = add("study", study, "run the missing runs of a study, and report the verdict")
    one.add_argument("study", metavar="STUDY", help=f"one of {', '.join(STUDIES)}")
    one.add_argument("--enough", action="store_true", help="if the verdict is “cannot tell”, also run the seeds that "
                     "would decide the claim")
    one.add_argument("--show", action="store_true", help="run nothing; show the result of existing runs")
    one.add_argument("--model", default="", metavar="MODEL", help="the pretrained model of a study that asks for one: "
                     "a Hugging Face folder, a hub id or an earlier run on one")
    one.add_argument("--json", action="store_true", help="print JSON")
    every = add("studies", studies, "the studies: claims, costs and verdicts")
    every.add_argument("--json", action="store_true", help="print JSON")


def studies(options: argparse.Namespace) -> int:
    """List them, with the time that they take here where earlier runs tell, else where they were recorded."""
    store = Store()
    rows, kept, known = store.sweep_runs()[::-1], recorded.read(), _earlier(store)
    if options.json:
        print(json.dumps({key: {"title": each.title, "claim": each.claim, "source": each.source,
                                "runs": len(plan.every(each)), "recorded": kept[key].to_json() if key in kept else None}
                          for key, each in STUDIES.items()}, ensure_ascii=False, indent=2))
        return 0
    for key, each in STUDIES.items():
        there = sum(len(found) for found in plan.found(each, rows).finished().values())
        verdict = f"  recorded: {WORDS[kept[key].verdict]}" if key in kept else ""
        here = f"  ({there} runs in this lab)" if there else ""
        print(f"{key:<18} {each.claim}\n{'':<18} {len(plan.every(each))} runs, {_cost(each, known, kept.get(key))}"
              f"{verdict}{here}")
    return 0


def study(options: argparse.Namespace) -> int:
    """Run the missing runs of a study, and print its result. Returns 0 if there is one."""
    if options.study not in STUDIES:
        raise LabError(f"There is no study {quoted(options.study)}: {suggestion(options.study, list(STUDIES))}")
    chosen, store = STUDIES[options.study], Store()
    if options.model or not options.show:  # otherwise show the runs with the newest run's model
        chosen = plan.of_model(chosen, options.model)
    store.reconcile()
    if not options.show:
        _run(store, chosen, quiet=options.json)
    if options.enough and not options.show:
        _run_enough(store, chosen, quiet=options.json)
    found = _result(store, chosen)
    if found is None:
        raise LabError(f"The study {chosen.key} has no result yet: run it without --show.")
    if options.json:
        print(json.dumps(as_json(chosen, found), ensure_ascii=False, indent=2))
    else:
        print(summary(chosen, found))
    return 0


def _runs(store: Store, chosen: Study) -> plan.Runs:
    return plan.found(chosen, store.sweep_runs()[::-1])


def _run(store: Store, chosen: Study, quiet: bool) -> None:
    """Run the reward models, if any are missing, then the rest, in the foreground. Ctrl-C stops all of them. Raises
    LabError if some runs did not finish."""
    for _ in range(2 if chosen.scorers else 1):
        specs = plan.missing(chosen, _runs(store, chosen))
        if not specs:
            return
        _run_all(store, chosen, specs, quiet)


def _run_enough(store: Store, chosen: Study, quiet: bool) -> None:
    """Run the seeds that would decide the claim, if the existing runs do not decide it. Raises LabError as `_run`."""
    found = _result(store, chosen)
    need = needed_to_decide(chosen, found.by_label) if found else None
    if need and need.seeds is None:
        print(f"labcore: {chosen.title} needs more than {MOST} seeds per setting: no runs are added", file=sys.stderr)
    elif need:
        _run_all(store, chosen, plan.to_decide(chosen, _runs(store, chosen), need), quiet)


def _run_all(store: Store, chosen: Study, specs: Sequence[RunSpec], quiet: bool) -> None:
    if not quiet:
        print(f"{chosen.title}: {len(specs)} runs, {_here(specs, _measured(specs, store))}", file=sys.stderr)
    choice.check()  # a bad setting is refused before anything is queued
    sweep_id = plan.queue(store, specs)
    launcher = Launcher(store, sweep=sweep_id)
    try:
        if wait(store, sweep_id, launcher) != {"finished"}:
            raise LabError(f"Some runs of the study {chosen.key} did not finish: python -m labcore sweeps "
                           f"{sweep_id} says why; the same command runs the missing ones.")
    except KeyboardInterrupt:
        sweep.cancel(store, sweep_id)
        print("labcore: stopping after the current steps", file=sys.stderr)
        raise
    finally:
        launcher.close()


def _result(store: Store, chosen: Study) -> Result | None:
    """The result of the finished runs; computes what it needs from their checkpoints. None where there is no result."""
    runs = _runs(store, chosen)
    if all(runs.finished().values()):
        for spec in needed(chosen, runs):
            jobs.compute(spec)
    return result(store, chosen, runs)


def _earlier(store: Store) -> dict[str, time_left.Pace]:
    return time_left.earlier(store.runs("finished", limit=EARLIER))


def _measured(specs: Sequence[RunSpec], store: Store) -> time_left.Estimate:
    """The estimated time of some runs, from earlier runs or a measurement made now."""
    known = _earlier(store)
    unknown = time_left.unknown(specs, known)
    asked = pace.asked([*unknown, *time_left.bases(specs)]) if unknown else None
    measured = time_left.of_job(asked["specs"], jobs.compute(asked)) if asked else {}
    return time_left.estimate(specs, known, measured, max_runs())


def _here(specs: Sequence[RunSpec], found: time_left.Estimate) -> str:
    return f"{'more than' if found.unknown else 'about'} {duration(found.seconds + found.before)} (estimated)"


def _cost(chosen: Study, known: dict[str, time_left.Pace], kept: recorded.Recorded | None) -> str:
    found = time_left.estimate(plan.every(chosen), known, {}, max_runs())
    if not found.unknown:
        return f"about {duration(found.seconds)} here (estimated from earlier runs)"
    if kept is None:
        return "no time known yet"
    return f"recorded: {duration(kept.seconds_of(chosen, len(plan.every(chosen))))} of training on {kept.machine}"


def summary(chosen: Study, found: Result) -> str:
    """The result as text."""
    lines = [chosen.title, f"  claim    {chosen.claim} ({chosen.source})", f"  setting  {chosen.setting}",
             f"  verdict  {WORDS[found.verdict]}", ""]
    for each in found.findings:
        numbers = interval_text(each.estimate, each.contrast.measure.digits)
        lines.append(f"  {'*' if each.contrast.decides else ' '} {each.contrast.label}: {numbers} "
                     f"{each.contrast.measure.unit}: {WORDS[each.verdict]}")
    return "\n".join([*lines, "", "  * decides the verdict; intervals are Welch's, and the deciding ones hold jointly "
                      "at 95 %."])


def as_json(chosen: Study, found: Result) -> dict[str, Any]:
    """The result for programs. `low` and `high` of a claim are null where it has no such edge."""
    return {"study": chosen.key, "claim": chosen.claim, "source": chosen.source, "verdict": found.verdict,
            "seconds": found.seconds, "findings": [
                {"label": each.contrast.label, "decides": each.contrast.decides, "unit": each.contrast.measure.unit,
                 **asdict(each.estimate), "verdict": each.verdict} for each in found.findings]}
