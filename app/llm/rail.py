"""The rail: SFT, reward model and RL as one line of three stations, each with its run and its number.

A station opens its run; the next one starts it. What is drawn is made by `payload`, which is pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import streamlit as st

from app import link
from app.components.rail import rail
from app.draft import Draft
from app.lab import active, lab
from app.llm import chain, labelling
from app.llm.chain import REWARD_MODEL, RL, SFT, Chain
from app.marked import worded
from app.naming import model as model_name
from app.session import runs_of, show_error, show_run
from app.status import STATES, name_of
from app.theme import number
from labcore.catalog.right import named, right
from labcore.errors import LabError
from labcore.runs.files import bases, uploads
from labcore.runs.files.paths import read_only
from labcore.runs.spec.run_spec import RunSpec, base_spec, knobs_of
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import number as number_of
from labcore.runs.titles import title as title_of
from labcore.tasks.task import make_task

BACK = 100  # rows in which a number is looked for: evaluations come every so many steps
KEYS = {SFT: ("exact_match", "loss"), REWARD_MODEL: ("eval_accuracy", "eval_step_accuracy"),
        RL: ("reward", "reward/gold")}
SAID = {"reward": "proxy", "reward/gold": "gold"}  # what a number is called here, where not as everywhere
LABEL = "label"  # what the button says that opens the labelling

Values = Mapping[str, float | None]


def show(run: RunRow | None, draft: Draft | None) -> None:
    """Draw the rail of the open run, or of the runs that would start from the draft; nothing if the task has no
    preference pairs."""
    if st.session_state.pop(labelling.MOVED, False):
        st.rerun()
    spec = run.spec if run else _spec(draft)
    if spec is None or not (spec.task_row.pairs or chain.stage(spec) in (REWARD_MODEL, RL)):
        return
    found = chain.find(spec, run, _recent(spec, run))
    values = {each.id: _values(each) for each in (found.sft, found.reward_model, found.rl) if each}
    rail(payload(spec, found, values), key="rail", on_chosen=lambda said: _chosen(said, spec, found))
    if link.get(labelling.OPEN) and not read_only():
        labelling.show(run, spec)


def _recent(spec: RunSpec, run: RunRow | None) -> list[RunRow]:
    """The newest runs, then those that the open one names, however old."""
    newest_runs = runs_of(spec.kind, beside=run)
    named = {run.base if run else None, *chain.scorers(spec)} - {each.id for each in newest_runs}
    return [*newest_runs, *filter(None, map(lab().find, filter(None, named)))]


def _spec(draft: Draft | None) -> RunSpec | None:
    try:
        return draft.spec() if draft else None
    except LabError:  # the form says what is missing
        return None


def _values(run: RunRow) -> Values:
    """The newest numbers of a run, read once a step."""
    kept = st.session_state.setdefault("rail:values", {})
    if kept.get(run.id, (None,))[0] != run.step:
        kept[run.id] = run.step, newest(run)
    values: Values = kept[run.id][1]
    return values


def newest(run: RunRow) -> Values:
    """The last value of each of a run's headline numbers; None where its last rows have none."""
    keys = KEYS[chain.stage(run.spec)]
    columns = lab().store.columns([run.id], keys, max(0, run.step - BACK))[run.id][-len(keys):]
    return {key: next((value for value in reversed(column) if value is not None), None)
            for key, column in zip(keys, columns, strict=True)}


# ---- what a click does -------------------------------------------------------------------------------------------


def _chosen(said: Mapping[str, str], spec: RunSpec, found: Chain) -> None:
    """Open a run, start a stage and open it, or label pairs; a fault is one sentence on the page."""
    if said.get("start") == LABEL:
        link.put(labelling.OPEN, True)
        return
    starts: dict[str, Callable[[], RunSpec]] = {REWARD_MODEL: lambda: chain.reward_model_spec(spec)}
    if model := found.reward_model:
        starts |= {key: partial(chain.rl_spec, model, key, prompts_of_pairs) for key in chain.STARTS}
    try:
        opened = said.get("run") or lab().launcher.start(starts[said["start"]]())
    except LabError as error:
        show_error(worded(str(error), knobs_of(spec.row, spec.task_row)))
    else:
        labelling.close()
        show_run(opened, spec.kind)
    st.session_state[labelling.MOVED] = True


# ---- what the browser draws --------------------------------------------------------------------------------------


def payload(spec: RunSpec, found: Chain, values: Mapping[str, Values]) -> dict[str, Any]:
    """The three stations. `values` are the newest numbers of their runs, by the run's id."""
    stations = [
        _station(SFT, "SFT base", found.sft, found, values) | ({} if found.sft else {"note": _origin(spec)}),
        _station(REWARD_MODEL, "Reward model", found.reward_model, found, values) | _without_model(found),
        _station(RL, "RL", found.rl, found, values) | _without_rl(spec, found)]
    return {"stations": [each | {"starts": []} for each in stations] if read_only() else stations}


def _station(key: str, title: str, run: RunRow | None, found: Chain, values: Mapping[str, Values]) -> dict[str, Any]:
    here = {"key": key, "title": title, "here": found.here == key, "run": "", "run_title": "", "note": "",
            "numbers": [], "starts": [], "colour": ""}
    if run is None:
        return here
    colour, state = STATES[run.state][0], name_of(run)
    counts = active(run) and run.step and not run.pending
    going = f"step {run.step:,} of {run.spec.steps:,}" if counts else state.lower()
    name = title_of(run) if key == RL else number_of(run)  # beside the others' names there is no room for more
    return here | {"run": run.id, "run_title": title_of(run), "colour": colour, "note": f"{name} · {going}",
                   "numbers": numbers(key, values.get(run.id, {}), right(run.spec.task_row, run.spec.knobs))}


def numbers(key: str, values: Values, check: str) -> list[list[str]]:
    """The headline numbers of a stage, [what, value]: both rewards of RL, else the first that there is. `check` is what
    a right completion has passed."""
    there = [[SAID.get(name, named(name, check).inline), number(value, 2)] for name in KEYS[key]
             if (value := values.get(name)) is not None]
    return there if key == RL else there[:1]


def _origin(spec: RunSpec) -> str:
    if spec.row.loop == SFT:
        return "not trained yet"
    sft = base_spec(spec)
    if sft is None:
        return f"{model_name(spec.model)}, without SFT"
    if not bases.there(sft.hash()):
        return f"trained first, at most {sft.steps} steps"
    return "comes with the lab" if bases.shipped(sft.hash()) else "saved by an earlier run"


def _without_model(found: Chain) -> dict[str, Any]:
    label = [[LABEL, "Label pairs"]]
    if found.reward_model:
        of_pairs = found.reward_model.spec.row.loop == REWARD_MODEL
        return {"starts": label if of_pairs else []}
    return {"note": "scores from pairs", "starts": [[REWARD_MODEL, "Train"], *label]}


def _without_rl(spec: RunSpec, found: Chain) -> dict[str, Any]:
    """The algorithms that can be started against the reward model, or what they wait for."""
    model = found.reward_model
    rows = [spec.kind_row.algorithms[key] for key in chain.STARTS]
    if model is None or active(model) or not model.step:
        return {} if found.rl else {"note": "after the reward model"}
    starts = [[row.key, row.label] for row in rows]
    return {"starts": starts} if found.rl else {"starts": starts, "note": "on its scores"}


PROMPTS_FILE = "prompts_of_pairs.jsonl"


def prompts_of_pairs(spec: RunSpec) -> str:
    """The path of an upload with each prompt of the pairs of `spec` once, for RL to answer: the chosen sides are the
    answers. Raises LabError where a file is unfit."""
    whole = {**spec.knobs, "held_out": 0.0, "held_out_file": ""}  # the run on the prompts holds its own share out
    rows = getattr(make_task(spec.task_row, whole, spec.data), "rows", ())
    answers = {row.prompt: row.chosen for row in reversed(rows)}
    lines = [json.dumps({"prompt": row.prompt, "answer": row.chosen}, ensure_ascii=False)
             for row in rows if answers.pop(row.prompt, None) is not None]
    return str(uploads.keep(PROMPTS_FILE, "".join(f"{line}\n" for line in lines).encode()))
