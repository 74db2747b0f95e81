"""The functions of the basic commands. All of them use the store; only `run` and `resume` train, in this process."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from labcore.catalog import kinds
from labcore.catalog.kinds import Kind, kind, task
from labcore.catalog.knob import suggestion
from labcore.catalog.mix.cautions import of_run
from labcore.catalog.presets import preset
from labcore.classic.envs.maze_text import from_json, to_text
from labcore.cli import environments, rewarding
from labcore.cli import models as defaults
from labcore.cli.data_files import kept_data
from labcore.cli.terminal import Progress
from labcore.errors import LabError, quoted
from labcore.exports.folder import export_run
from labcore.runs import mixes, titles
from labcore.runs.files import untrusted
from labcore.runs.files.paths import path_of
from labcore.runs.knob_history import KnobHistory
from labcore.runs.lists.marks import project_name
from labcore.runs.spec import cautions
from labcore.runs.spec.model_names import model_of_name
from labcore.runs.spec.run_spec import RunSpec, default_threads, make, policy_of_run, with_knobs
from labcore.runs.store.rows import ENDED, RunRow
from labcore.runs.store.store import Store
from labcore.tasks import labels
from labcore.tasks.cautions import of_file
from labcore.tasks.file_kinds import task_for
from labcore.tasks.layouts import names_of
from labcore.tasks.task import check_data
from labcore.workers import sinks

OBEY_SECONDS = 5.0  # how long to wait for a worker's answer before saying that it will come later
INTERRUPTED = 130  # the exit status of a command ended by Ctrl-C


def run(options: argparse.Namespace) -> int:
    """Train a new run to its end."""
    spec = spec_of(options)
    if why := cautions.fault(spec):
        raise LabError(why)
    log = sinks.checked(options.log)
    if options.out:
        check_out(path_of(options.out))
    warn(spec)
    store = Store()
    run_id = store.create(spec, mine=True, project=project_name(options.project))
    sinks.ask(store, run_id, log)
    return train(store, run_id, options.json, options.out)


def add_log(sub: argparse.ArgumentParser) -> None:
    """Add the option that has metrics go elsewhere as well."""
    sub.add_argument("--log", action="append", default=[], choices=list(sinks.SINKS), help="also send metrics to this "
                     "tool while the run trains, and after a resume; may be repeated. RL_LAB_LOG sets it for all runs")


def warn(*specs: RunSpec) -> None:
    """Say before the start which defaults pretrained weights have and what to beware of in these runs, each once: what
    the page says beside the form."""
    said = (sentence for spec in specs for sentence in (defaults.of_run(spec), spec.caution(), *of_run(
        spec.kind, spec.algorithm, spec.knobs, {knob.key: knob.default for knob in spec.declared}), of_file(spec)))
    for sentence in dict.fromkeys(filter(None, said)):
        print(f"labcore: {sentence}", file=sys.stderr)


def spec_of(options: argparse.Namespace) -> RunSpec:
    """The spec that the options of `run` ask for. Raises LabError if the options do not fit together, or name something
    that does not exist."""
    environments.take(options)
    _take_preset(options)
    files = {key: path_of(getattr(options, key)) for key in ("prompts", "preferences", "text")
             if getattr(options, key) is not None}
    if len(files) > 1:
        raise LabError(f"--{' and --'.join(files)} cannot be given together: a run learns from one file.")
    usual = kind(options.kind)
    task_key = options.task
    if task_key is None:
        none = "own_environment" if options.environment else usual.task if options.maze is None else "own"
        task_key = next(iter(files), none)
    if files and not task(task_key, options.kind).data:
        raise LabError(f"The task {quoted(task_key)} reads no {next(iter(files))} file: leave --task out.")
    own = {"verifier": options.verifier, "fields": options.map, "rollouts": options.rollouts}
    knobs = assignments(options.knobs) | {key: value for key, value in own.items() if value}
    if options.maze is not None:
        knobs = knobs_of_maze(path_of(options.maze)) | knobs
    algorithm, mix, chosen = algorithm_of(options)
    knobs = (dict(usual.unwatched) | chosen | rewarding.knobs_of(options) | knobs | labels_of(options)
             | held_out_of(options))
    kept = [str(kept_data(path)) for path in files.values()]
    if kept:
        task_key = _task_of_file(Path(kept[0]), task_key, usual, algorithm, knobs)
    model = options.model and model_of_name(options.model)
    threads = default_threads(model) if options.threads is None else options.threads
    spec = make(kind=options.kind, algorithm_key=algorithm, task_key=task_key, model=model, knobs=knobs,
                seed=options.seed, steps=options.steps, device=options.device, threads=threads,
                data=kept[0] if kept else None, mix=mix)
    if spec.data:
        check_data(spec.task_row, spec.data, spec.knobs)
    rewarding.check(spec)
    return spec


def _take_preset(options: argparse.Namespace) -> None:
    """Put the settings of `--preset` into the options; explicit options take precedence. Without both a preset and a
    kind, the run is one of a language model. Raises LabError if the preset is of another kind than `--kind`."""
    if options.preset is None:
        options.kind = options.kind or "llm"
        return
    chosen = preset(options.preset)
    if options.kind not in (None, chosen.kind):
        raise LabError(f"The preset {chosen.key} is of the kind {chosen.kind}, not {options.kind}: remove --kind "
                       f"{options.kind}, or choose a preset of that kind (python -m labcore list --kind "
                       f"{options.kind}).")
    options.kind, options.algorithm = chosen.kind, chosen.algorithm
    options.task, options.steps = (chosen.task if options.task is None else options.task,
                                   chosen.steps if options.steps is None else options.steps)
    options.knobs = [*(f"{key}={value}" for key, value in chosen.knobs.items()), *options.knobs]


def _task_of_file(path: Path, task_key: str, usual: Kind, algorithm: str, knobs: Mapping[str, Any]) -> str:
    """The task that a file is for; says so where that is another one than it was given for."""
    found = task_for(path, task(task_key, usual.key), [kinds.algorithm(algorithm, usual.key)], usual.tasks,
                     names_of(knobs))
    if found.key != task_key:
        print(f"labcore: {path.name} has preferences, so the run learns the task {found.key}.", file=sys.stderr)
    return found.key


def algorithm_of(options: argparse.Namespace) -> tuple[str, str, dict[str, Any]]:
    """The algorithm's key, the name of the mix to run (empty: no mix), and the knobs of a saved mix. --algorithm names
    a row or a saved mix; --mix gives the mix of this run a name of its own. Raises LabError if --algorithm names
    neither a row nor a saved mix."""
    name = options.algorithm
    there = kind(options.kind).algorithms
    if name in there or options.kind != "llm":
        return name, options.mix or "", {}
    saved = [mix for mix in mixes.saved()[0] if mix.name.casefold() == name.casefold()]
    if not saved:
        raise LabError(f"There is no algorithm or saved mix {quoted(name)}: "
                       f"{suggestion(name, [*there, *(mix.name for mix in mixes.saved()[0])])}")
    return saved[0].algorithm, options.mix or saved[0].name, dict(saved[0].knobs)


def labels_of(options: argparse.Namespace) -> dict[str, str]:
    """The knob of `--labels FILE`, which is kept; none without it. Raises LabError where it holds no pairs."""
    place = getattr(options, "labels", None)
    return {} if place is None else {"labelled_pairs": labels.adopt(place)}


def held_out_of(options: argparse.Namespace) -> dict[str, str]:
    """The knob of `--held-out FILE`, which is kept; none without it. Raises LabError where no first file is given."""
    second = getattr(options, "held_out", None)
    if second is None:
        return {}
    if all(getattr(options, key) is None for key in ("prompts", "preferences", "text")):
        raise LabError("--held-out needs a training file: give --prompts, --preferences or --text too.")
    return {"held_out_file": kept_data(path_of(second)).parent.name}


def knobs_of_maze(path: Path) -> dict[str, Any]:
    """The maze in a JSON file as a knob, and its own discount. Raises LabError where the file is no maze."""
    maze = from_json(untrusted.read(path))
    return {"maze": to_text(maze), "gamma": maze.gamma}


def assignments(words: Sequence[str]) -> dict[str, str]:
    """{"beta": "0.1"} from ["beta=0.1"]. Raises LabError where a word is no assignment."""
    for word in words:
        if "=" not in word:
            raise LabError(f"{quoted(word)} is no KNOB=VALUE: write for example beta=0.1.")
    return {key.strip(): value for key, _, value in (word.partition("=") for word in words)}


def check_out(folder: Path) -> None:
    """Raises LabError where an export could not be written to `folder`: before the training, not after."""
    if folder.is_file():
        raise LabError(f"{folder} is a file: give --out a folder.")
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise LabError(f"The folder {folder} cannot be made ({there} is a file): give --out another one.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise LabError(f"The folder {there} cannot be written to: give --out another one.")


def train(store: Store, run_id: str, as_json: bool, out: str | None = None) -> int:
    """Drive `run_id` in the foreground. Returns 0 if it finished."""
    from labcore.workers.worker import drive  # brings torch in, which the other commands do without

    progress = Progress(store, quiet=as_json)
    print(f"run {run_id} ({titles.title(store.run(run_id))})", file=sys.stderr)  # scripts read the id
    state = drive(store, run_id, on_record=progress.show, on_activity=progress.within)
    progress.close()
    row = store.run(run_id)
    written = str(export_run(store, run_id, out, merged=True)) if out and row.step else None
    if as_json:
        print(json.dumps(summary(store, row) | {"out": written}, ensure_ascii=False))
    else:
        said = titles.with_titles(row.message, lambda: store)
        print(f"{row.state}: {said}" + (f"\nwritten to {written}" if written else ""), file=sys.stderr)
    if state == "finished":
        return 0
    if as_json:
        print(f"labcore: {titles.with_titles(row.message, lambda: store)}", file=sys.stderr)
    return INTERRUPTED if state == "interrupted" else 1


def summary(store: Store, row: RunRow) -> dict[str, Any]:
    """A run as data for programs: id, title, state, last metrics, active seconds."""
    last = store.steps_after(row.id, row.step - 1)[-1:] if row.step else []
    return {"run": row.id, "title": titles.title(row), "state": row.state, "message": row.message,
            "algorithm": row.spec.algorithm, "task": row.spec.task, "model": row.spec.model, "seed": row.spec.seed,
            "step": row.step, "steps": row.spec.steps, "seconds": round(row.seconds, 3),
            "metrics": last[0].metrics if last else {},
            **({"mix": row.spec.mix} if row.spec.mix else {})}


def play(options: argparse.Namespace) -> int:
    """Let the policy of a run, or of an exported checkpoint, act."""
    if options.episodes < 1:
        raise LabError(f"--episodes is {options.episodes}: play at least one.")
    if options.seed < 0:
        raise LabError(f"--seed is {options.seed}: use a whole number from 0.")
    folder = path_of(options.run)
    if folder.is_dir():
        folder = folder / "checkpoint" if (folder / "checkpoint").is_dir() else folder
        of = kind_of_checkpoint(folder)
    else:
        of = Store().run(options.run).spec.kind
        folder = policy_of_run(options.run)
    if not kind(of).replay:
        raise LabError(f"{options.run} is a language model, and play is for maze and CartPole runs: load its exported "
                       "checkpoint with transformers.")
    played = resolve_name(kind(of).replay)(folder, options.episodes, options.seed, options.best)
    if options.json:
        print(json.dumps(played, ensure_ascii=False))
        return 0
    if played["drawing"]:
        print(played["drawing"], end="\n\n")
    for number, (total, length) in enumerate(zip(played["returns"], played["lengths"], strict=True), 1):
        print(f"episode {number:>3}   return {total:>z10.2f}   {length:>5} steps")
    print(f"mean return {sum(played['returns']) / options.episodes:z.2f} by the policy of step {played['step']}")
    return 0


def kind_of_checkpoint(folder: Path) -> str:
    """The kind of run of an exported checkpoint. Raises LabError where the folder holds none."""
    try:
        config = untrusted.read_json(folder / "config.json", constants=True)
        return str(config.get("kind", "llm"))
    except (LabError, ValueError, AttributeError) as error:
        raise LabError(f"The folder {folder} holds no checkpoint that can be played: give the id of a run, or the "
                       "folder that an export wrote.") from error


def ask(options: argparse.Namespace) -> int:
    """Pause, step or stop a run."""
    store = Store()
    store.reconcile()
    control = store.ask(options.run, options.ask)
    return answer(store, options.run, [control], options.ask)


def resume(options: argparse.Namespace) -> int:
    """Resume a paused run where it runs, or an ended one here."""
    store = Store()
    store.reconcile()
    knobs, row = assignments(options.knobs), store.run(options.run)
    rewarding.register(options.reward, row)
    log = sinks.checked(options.log)
    if log and row.state not in ENDED:
        raise LabError(f"{options.run} is {row.state}, and --log takes effect when a run starts: leave it out, or stop "
                       "the run first.")
    if row.state in ENDED:
        now = KnobHistory(row.spec, store.events_after(row.id)).at()
        with_knobs(replace(row.spec, knobs=now), knobs.items())  # refused here, before the run is started again
        sinks.ask(store, options.run, log)
        store.requeue(options.run, knobs, mine=True)
        return train(store, options.run, options.json)
    controls = [store.ask(options.run, "set", {"knob": key, "value": value}) for key, value in knobs.items()]
    return answer(store, options.run, [*controls, store.ask(options.run, "resume")], "resume")


def set_knobs(options: argparse.Namespace) -> int:
    """Change knobs of a run."""
    store = Store()
    store.reconcile()
    controls = [store.ask(options.run, "set", {"knob": key, "value": value})
                for key, value in assignments(options.knobs).items()]
    return answer(store, options.run, controls, " ".join(options.knobs))


def answer(store: Store, run_id: str, control_ids: Sequence[int], what: str) -> int:
    """Wait for the worker to settle the controls, and say what became of them. Returns 1 if one was refused."""
    name = titles.title(store.run(run_id))
    deadline, told = time.monotonic() + OBEY_SECONDS, False
    while True:
        settled = [control for control in store.controls(run_id) if control.id in control_ids]
        if all(control.state != "asked" for control in settled):
            break
        if not told and (pending := store.run(run_id).pending):
            told = True
            print(f"{name}: {pending} …", file=sys.stderr, flush=True)
        if time.monotonic() > deadline:
            print(f"{name}: asked for {what}; the worker has not answered yet.")
            return 0
        time.sleep(0.05)
    refused = [control.refused for control in settled if control.refused]
    for reason in refused:
        print(f"labcore: {reason}", file=sys.stderr)
    if not refused:
        print(f"{name}: {what} at step {settled[-1].step}.")
    return 1 if refused else 0
