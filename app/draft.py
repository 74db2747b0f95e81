"""The draft of the next run: the settings on the page, kept in the session and in the URL."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import streamlit as st

from app import algorithms, link, number_boxes
from app.link import Param
from app.marked import worded
from app.session import PROBLEM, RUN, view
from labcore.catalog import kinds
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.kinds import Kind
from labcore.catalog.knob import Knob, Value
from labcore.catalog.llm.pretrained import of_length
from labcore.catalog.llm.tasks import MEASURED
from labcore.catalog.mix import row as mixed
from labcore.catalog.presets import Preset, of_kind
from labcore.catalog.task import Task
from labcore.errors import LabError, cut
from labcore.runs.mixes import Mix
from labcore.runs.presets import preset_of
from labcore.runs.spec.checks import WHOLE
from labcore.runs.spec.model_names import model_of_name, name_of_model
from labcore.runs.spec.run_spec import RunSpec, default_threads, knobs_of, make, steps_of, weights_of
from labcore.runs.store.rows import RunRow

WARM_UP = Param("warm_up", False, link.switch)
PRESET, BEFORE = "preset", "before"  # a link's parameter; the field with the settings from before the preset


class Draft:
    """The settings of the next run, kept in the session as plain values. `scope` names the run or the kind that the
    draft began from."""

    _made: tuple[dict[str, Any], RunSpec] | None = None  # the newest spec, and the settings that it was made of

    def __init__(self, run: RunRow | None, kind: str) -> None:
        self.kind = kinds.kind(run.spec.kind if run else kind)
        self.scope = f"after-{run.id}" if run else f"new-{self.kind.key}"
        self.new = run is None
        key = f"draft:{self.scope}"
        if key not in st.session_state:
            st.session_state[key] = _of_spec(run.spec) if run else _of_url(self.kind)
        self.fields: dict[str, Any] = st.session_state[key]

    @property
    def row(self) -> Algorithm:
        if self.fields["mix"]:
            return mixed.row(self.fields["algorithm"], self.fields["mix"], self.values)
        return kinds.algorithm(self.fields["algorithm"], self.kind.key)

    @property
    def key(self) -> str:
        """The key of the chosen algorithm or mix in lists of algorithms."""
        return algorithms.key_of(self.fields["algorithm"], self.fields["mix"])

    @property
    def identity(self) -> tuple[str, str, str]:
        """The algorithm, the name of its mix and the task."""
        return self.fields["algorithm"], self.fields["mix"], self.fields["task"]

    @property
    def place(self) -> str:
        """The name under which its knobs are kept: each combination of algorithm, task and mix has its own."""
        return algorithms.place(*self.identity)

    @property
    def knob_scope(self) -> str:
        """The prefix of its knobs' widget keys; it differs for pretrained weights, whose knobs have other ranges."""
        return f"{self.scope}:{self.place}" + (":pretrained" if self.weights else "")

    @property
    def weights(self) -> str:
        """The way its weights are trained: see `weights_of`."""
        return weights_of(self.kind, self.fields["model"], self.fields["knobs"].get(self.place, {}))

    @property
    def declared(self) -> tuple[Knob, ...]:
        """Its knobs, with the defaults for its task and its weights."""
        kept = self.fields["knobs"].get(self.place, {})
        return of_length(algorithms.knobs_at(self.place, self.kind, self.weights), kept)

    @property
    def task_row(self) -> Task:
        return kinds.task(self.fields["task"], self.kind.key)

    @property
    def values(self) -> dict[str, Value]:
        """The value of every knob. If a default has changed, for example with other weights or another length limit, a
        knob at its old default gets the new one."""
        kept: dict[str, Value] = self.fields["knobs"].setdefault(self.place, {})
        usual = self.fields.setdefault("usual", {}).setdefault(self.place, {})
        for knob in self.declared:
            if knob.key not in kept or (kept[knob.key] == usual.get(knob.key) != knob.default):
                kept[knob.key] = knob.default
            usual[knob.key] = knob.default
        return kept

    @property
    def usual_values(self) -> dict[str, Value]:
        """The default value of every knob."""
        return {knob.key: knob.default for knob in self.declared}

    @property
    def steps(self) -> int:
        steps: int = self.fields["steps"].get(self.fields["algorithm"], self.usual_steps)
        return steps

    @property
    def usual_steps(self) -> int:
        """The default number of steps."""
        return steps_of(self.row, self.weights)

    def choose(self, field: str, value: str) -> None:
        """Choose another algorithm, task or model. Another algorithm learns the same task, so `shared` knobs keep their
        values.

        The `value` of an algorithm may also be the key of a mix (`app.algorithms`).
        """
        task, kept = self.fields["task"], self.shared()
        if field == "algorithm" and value.startswith(algorithms.MIX):
            self._take(value.removeprefix(algorithms.MIX))
        else:
            cleared = {"mix": ""} if field == "algorithm" else {}
            self.fields |= {field: model_of_name(value) if field == "model" else value, **cleared}
        if self.fields["task"] == task:
            values = self.values
            values.update({key: value for key, value in kept.items() if key in values})

    def _take(self, name: str) -> None:
        """Train with the saved mix `name`; without a name, with a new mix that begins as a copy of the present
        choices."""
        if name == self.fields["mix"] and name:
            return
        mix = algorithms.saved_as(name) or self.begun().get(name)
        if mix is None:
            begun = self.row if mixed.can_be_mixed(self.row) else kinds.algorithm(self.kind.algorithm, self.kind.key)
            named = kinds.algorithm(begun.key, self.kind.key)
            mix = Mix(name or algorithms.free_name(named), begun.key, self.values)
        known = {knob.key for knob in mixed.with_every_knob(mix.algorithm).knobs}
        self.fields |= {"algorithm": mix.algorithm, "mix": mix.name}
        self.fields["knobs"].setdefault(self.place, {key: mix.knobs[key] for key in mix.knobs if key in known})

    @property
    def preset(self) -> Preset | None:
        """The preset that has these settings, whatever the steps and the seed."""
        return None if self.fault() else preset_of(self.spec())

    @property
    def preset_chosen(self) -> bool:
        """True if a preset was chosen; settings that only happen to equal those of a preset do not count."""
        return bool(self.fields.get(PRESET))

    @property
    def before_preset(self) -> dict[str, Any] | None:
        """The fields as they were before a preset was taken; None if no preset was taken."""
        kept: dict[str, Any] | None = self.fields.get(BEFORE)
        return kept

    def take(self, preset: Preset) -> None:
        """Take the settings of a preset. The present settings are kept for `go_back`."""
        before = self.before_preset
        if not (self.preset_chosen and self.preset):
            before = {key: deepcopy(value) for key, value in self.fields.items() if key != BEFORE}
        taken = of_preset(self.kind, preset)
        kept = {name: {**self.fields[name], **taken[name]} for name in ("steps", "knobs")}  # keeps other algorithms'
        self.fields |= {**taken, **kept, BEFORE: before}

    def go_back(self) -> None:
        """Restore the settings from before a preset was taken."""
        if before := self.before_preset:
            self.fields.clear()
            self.fields |= before

    def begun(self) -> dict[str, Mix]:
        """The mixes whose knobs this draft keeps, saved or not, by name."""
        return algorithms.begun(self.fields["knobs"])

    def of_task(self) -> dict[str, Value]:
        """The values of the task's own knobs."""
        values = self.values
        return {knob.key: values[knob.key] for knob in self.task_row.knobs}

    def moved(self, knob: Knob, value: Value) -> None:
        """Called when a knob is moved on the page. Nothing else in the draft of one run depends on a knob."""

    def shared(self) -> dict[str, Value]:
        """The values that another algorithm keeps if it has these knobs: without them γ would change with the
        algorithm, and with γ the problem. Each loop has its own defaults of how held-out rows are measured, so of those
        knobs only chosen values are kept."""
        values = self.values
        usual = {knob.key for knob in knobs_of(self.row, self.task_row)
                 if knob.key in MEASURED and values[knob.key] == knob.default}
        return {key: value for key, value in self.of_task().items() if key not in usual} | {
            key: value for key, value in values.items() if key in self.kind.shared}

    def spec(self) -> RunSpec:
        """The spec of these settings. Raises LabError if they do not fit together, a number is out of its range, or a
        file is missing."""
        number_boxes.check(self.scope)
        number_boxes.check(self.knob_scope)
        data = self.fields["data"].get(self.task_row.data)
        if self.task_row.data and not data:
            raise LabError(f"{self.task_row.label}: upload a file with your {self.task_row.data} first.")
        if self.fields.get("unusable") == self.task_row.key:
            raise LabError(f"{self.task_row.label}: the upload cannot be used as it is. See the message below it.")
        asked = {"kind": self.kind.key, "algorithm_key": self.fields["algorithm"], "task_key": self.fields["task"],
                 "model": self.fields["model"], "knobs": dict(self.values), "seed": self.fields["seed"],
                 "steps": self.steps, "threads": default_threads(self.fields["model"]), "data": data,
                 "mix": self.fields["mix"]}
        if self._made is None or self._made[0] != asked:  # called about thirty times while a page is drawn
            self._made = asked, make(**asked)
        return self._made[1]

    def look_again(self) -> None:
        """Make the spec anew, because the files that it names may have changed since this draft was made."""
        self._made = None

    def fault(self) -> str:
        """The reason why these settings cannot run, as a sentence; empty if they can."""
        try:
            self.spec()
        except LabError as error:
            return worded(str(error), knobs_of(self.row, self.task_row))
        return ""

    def caution(self) -> str:
        """The reason why a run of these settings can start but is unlikely to learn well; usually empty."""
        return "" if self.fault() else worded(self.spec().caution(), knobs_of(self.row, self.task_row))

    def to_url(self) -> None:
        """Write every choice that is not a default into the link, so that a copied link opens the same form. An open
        run keeps its link."""
        if not self.new or RUN.key in link.query():  # a late rerun of the form must not overwrite the link of a run
            return
        if self.preset_chosen and (same := self.preset) and (self.steps, self.fields["seed"]) == (same.steps, 0):
            link.replace_all({PRESET: same.key, **view()})
            return
        values = {**self.fields, "steps": self.steps, **self.values}
        declared = (*_choices(self.kind, self.usual_steps), *_knobs(self.declared))
        link.replace_all({**link.texts({each: values[each.key] for each in declared}), **view()})


def begin(kind: str, **fields: Any) -> None:
    """Open an empty page whose draft has these fields. Other pages use it to propose a run."""
    st.session_state[f"draft:new-{kind}"] = {**defaults(kinds.kind(kind)), "steps": {}, "data": {}, "knobs": {},
                                             **fields}
    st.session_state[f"open_run:{kind}"] = None


def defaults(kind: Kind) -> dict[str, Any]:
    """The default fields of a draft of this kind."""
    return {"algorithm": kind.algorithm, "mix": "", "task": kind.task, "model": kind.model, "seed": 0, "warm_up": False}


def of_preset(kind: Kind, preset: Preset) -> dict[str, Any]:
    """The fields of a draft with the settings of a preset."""
    place = algorithms.place(preset.algorithm, "", preset.task)
    return {**defaults(kind), "algorithm": preset.algorithm, "task": preset.task, PRESET: preset.key,
            "steps": {preset.algorithm: preset.steps}, "knobs": {place: dict(preset.knobs)}}


def _of_spec(spec: RunSpec) -> dict[str, Any]:
    return {"algorithm": spec.algorithm, "mix": spec.mix, "task": spec.task, "model": spec.model, "seed": spec.seed,
            "warm_up": False, "steps": {spec.algorithm: spec.steps},
            "data": {spec.task_row.data: spec.data} if spec.data else {},
            "knobs": {algorithms.place(spec.algorithm, spec.mix, spec.task): dict(spec.knobs)}}


def _of_url(kind: Kind) -> dict[str, Any]:
    """The draft that a link describes. Settings that do not fit keep their defaults, and a message names them."""
    said = link.query()
    there = {preset.key: preset for preset in of_kind(kind.key)}
    named, wrong = link.parsed([Param(PRESET, "", link.one_of(there))], said)
    begun = of_preset(kind, there[named[PRESET]]) if named else {**defaults(kind), "steps": {}, "knobs": {}}
    values, unfit = link.parsed(_choices(kind), said)
    wrong += unfit
    steps = values.pop("steps", None)
    fields: dict[str, Any] = {**begun, **values, "data": {}}
    if fields["mix"] and not mixed.can_be_mixed(kinds.algorithm(fields["algorithm"], kind.key)):
        wrong.append(link.Fault("mix", fields["mix"], "this algorithm has no choices to mix"))
        fields["mix"] = ""
    algorithm, task, mix = fields["algorithm"], fields["task"], fields["mix"]
    place = algorithms.place(algorithm, mix, task)
    knobs, refused = link.parsed(_knobs(algorithms.knobs_at(place, kind)), said)
    fields |= {"steps": {algorithm: steps} if steps else begun["steps"],
               "knobs": {place: {**begun["knobs"].get(place, {}), **knobs}}}
    if problems := [f"{each.key}={cut(each.said)}" for each in wrong] + [each.why.rstrip(".") for each in refused]:
        st.session_state[PROBLEM] = f"Settings of the link that do not fit were ignored: {'; '.join(problems)}"
    return fields


def _choices(kind: Kind, steps: int = 0) -> list[Param[Any]]:
    """The parameters of a draft in a link, besides its knobs; `steps` is the algorithm's default number of steps."""
    task = _some if kind.any_task else link.one_of(kind.tasks)
    return [Param("algorithm", kind.algorithm, link.one_of(kind.algorithms)), Param("mix", "", mixed.check_name),
            Param("task", kind.task, task),
            Param("model", kind.model, model_of_name, name_of_model), Param("seed", 0, link.whole(*WHOLE["seed"])),
            Param("steps", steps, link.whole(*WHOLE["steps"])), *([WARM_UP] if len(kind.models) > 1 else [])]


def _some(said: str) -> str:
    """The text itself. Raises LabError if it is empty."""
    if not said:
        raise LabError("name one")
    return said


def _knobs(declared: Iterable[Knob]) -> list[Param[Any]]:
    return [Param(knob.key, knob.default, knob.parse, str) for knob in declared]
