"""What this browser tab looks at: the open run, the draft of the next one, and their place in the URL."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.lab import active, lab
from app.tokens import literal
from labcore.catalog.algorithms import ALGORITHMS, algorithm
from labcore.catalog.knob import Value
from labcore.catalog.models import MODELS
from labcore.catalog.tasks import TASKS, task
from labcore.errors import LabError
from labcore.runs.rows import ACTIVE, RunRow
from labcore.runs.spec import WHOLE, RunSpec, default_threads, knobs_of, make

DEFAULTS: dict[str, Any] = {"algorithm": "grpo", "task": "sort", "model": "tiny", "seed": 0}
PLACES: dict[str, Any] = {"x": "updates", "smooth": 0.0}  # how the charts are looked at
AXES = {"updates": "Updates", "tokens": "Tokens", "seconds": "Seconds"}
SMOOTHEST = 0.99
PROBLEM = "problem"


def open_run() -> RunRow | None:
    """The run of the URL; else the one this tab had open; else, in a new tab, the newest that is going."""
    state = st.session_state
    if (run_id := st.query_params.get("run")) is not None:
        run = lab().find(run_id)
        if run is None:
            state[PROBLEM] = f"There is no run {run_id} here: it was deleted, or the link is from another lab."
            close_run()
        else:
            state["open_run"] = run.id
        return run
    if "open_run" not in state:
        going = [] if st.query_params else lab().store.runs(*ACTIVE, limit=1)
        state["open_run"] = going[0].id if going else None
    run = lab().find(state["open_run"])
    if run:
        st.query_params.from_dict({"run": run.id, **_view()})
    return run


def show_run(run_id: str) -> None:
    """Open a run and put it into the URL, in place of the draft."""
    st.session_state["open_run"] = run_id
    st.query_params.from_dict({"run": run_id, **_view()})


def close_run() -> None:
    """Back to an empty page with the draft."""
    st.session_state["open_run"] = None
    st.query_params.from_dict(_view())


def _view() -> dict[str, str]:
    return {key: st.query_params[key] for key in PLACES if key in st.query_params}


def place(key: str) -> Any:
    """A choice of how the charts are looked at, from the URL; the default where the URL holds none that fits."""
    default = PLACES[key]
    try:
        value = type(default)(st.query_params.get(key, default))
    except ValueError:
        return default
    fits = value in AXES if key == "x" else 0 <= value <= SMOOTHEST
    return value if fits else default


def set_place(key: str, value: Any) -> None:
    if value == PLACES[key]:
        st.query_params.pop(key, None)
    else:
        st.query_params[key] = str(value)


class Draft:
    """The settings of the next run, kept in the session as plain values. `scope` names what it began from."""

    def __init__(self, run: RunRow | None) -> None:
        self.scope = f"after-{run.id}" if run else "new"
        key = f"draft:{self.scope}"
        if key not in st.session_state:
            st.session_state[key] = _of_spec(run.spec) if run else _of_url()
        self.fields: dict[str, Any] = st.session_state[key]

    @property
    def row(self):
        return algorithm(self.fields["algorithm"])

    @property
    def task_row(self):
        return task(self.fields["task"])

    @property
    def values(self) -> dict[str, Value]:
        """Every knob's value; each pair of algorithm and task keeps its own."""
        kept = self.fields["knobs"].setdefault(f"{self.fields['algorithm']}:{self.fields['task']}", {})
        for knob in knobs_of(self.row, self.task_row):
            kept.setdefault(knob.key, knob.default)
        return kept

    @property
    def steps(self) -> int:
        return self.fields["steps"].get(self.fields["algorithm"], self.row.steps)

    def spec(self) -> RunSpec:
        """Raises LabError in words where the settings do not go together."""
        return make(algorithm_key=self.fields["algorithm"], task_key=self.fields["task"], model=self.fields["model"],
                    knobs=self.values, seed=self.fields["seed"], steps=self.steps,
                    threads=default_threads(self.fields["model"]), data=self.fields["data"].get(self.task_row.data))

    def fault(self) -> str:
        """Why these settings cannot run, in a sentence; empty where they can."""
        try:
            self.spec()
        except LabError as error:
            return str(error)
        return ""

    def to_url(self) -> None:
        """Every choice that is not a default, so that a copied link opens the same form. An open run keeps its link."""
        if self.scope != "new":
            return
        found = {key: str(self.fields[key]) for key, default in DEFAULTS.items() if self.fields[key] != default}
        if self.steps != self.row.steps:
            found["steps"] = str(self.steps)
        defaults = {knob.key: knob.default for knob in knobs_of(self.row, self.task_row)}
        found |= {key: str(value) for key, value in self.values.items() if value != defaults[key]}
        if {**found, **_view()} != st.query_params.to_dict():
            st.query_params.from_dict({**found, **_view()})


def _of_spec(spec: RunSpec) -> dict[str, Any]:
    return {"algorithm": spec.algorithm, "task": spec.task, "model": spec.model, "seed": spec.seed,
            "steps": {spec.algorithm: spec.steps}, "data": {spec.task_row.data: spec.data} if spec.data else {},
            "knobs": {f"{spec.algorithm}:{spec.task}": dict(spec.knobs)}}


def _of_url() -> dict[str, Any]:
    """The draft that a link describes; what does not fit is left at its default and said."""
    url, tables = st.query_params, {"algorithm": ALGORITHMS, "task": TASKS}
    fields: dict[str, Any] = {**DEFAULTS, "steps": {}, "data": {}, "knobs": {}}
    wrong = []
    for key, table in tables.items():
        if key in url and url[key] in table:
            fields[key] = url[key]
        elif key in url:
            wrong.append(f"{key}={url[key]}")
    fields["model"] = url.get("model", DEFAULTS["model"])
    for key in ("seed", "steps"):
        low, high = WHOLE[key]
        if key in url and url[key].isdecimal() and len(url[key]) < 20 and low <= int(url[key]) <= high:
            fields[key] = {fields["algorithm"]: int(url[key])} if key == "steps" else int(url[key])
        elif key in url:
            wrong.append(f"{key}={url[key]}")
    kept = fields["knobs"].setdefault(f"{fields['algorithm']}:{fields['task']}", {})
    for knob in knobs_of(algorithm(fields["algorithm"]), task(fields["task"])):
        if knob.key in url:
            try:
                kept[knob.key] = knob.parse(url[knob.key])
            except LabError as error:
                wrong.append(str(error).rstrip("."))
    if wrong:
        st.session_state[PROBLEM] = f"The link holds settings that do not fit and were left out: {'; '.join(wrong)}"
    return fields


def models() -> list[str]:
    return list(MODELS)


def follow(run: RunRow | None) -> Draft | None:
    """The draft to show beside `run`: none while it is going."""
    return None if active(run) else Draft(run)


def tell(sentence: str) -> None:
    """Say this on top of the page at the next run of the script."""
    st.session_state[PROBLEM] = sentence


def problem() -> None:
    """Show and forget what went wrong."""
    if sentence := st.session_state.pop(PROBLEM, None):
        st.error(literal(sentence), icon=":material/error:")
