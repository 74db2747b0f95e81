"""The form of a lesson, with its fields in reading order. Each change edits the text of the lesson."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from app.session import show_error
from app.tokens import literal
from app.widget_state import widget_state
from labcore.analysis.lessons import comparison, edited
from labcore.analysis.lessons.comparison import VALUES, Comparison
from labcore.analysis.lessons.lesson import LEAST_SEEDS, MOST_RUNS, MOST_SEEDS, OWN_TOPIC
from labcore.catalog import kinds
from labcore.catalog.kinds import KINDS
from labcore.catalog.knob import Knob, shown
from labcore.catalog.metrics import METRICS
from labcore.catalog.presets import PRESETS
from labcore.errors import LabError
from labcore.runs.spec.checks import WHOLE
from labcore.runs.spec.run_spec import knobs_of

Take = Callable[[Any], None]
Way = tuple[str | int, ...]
NUMBER = "a number"
BOUNDS = {"minutes": (1, 60), "steps": WHOLE["steps"], "seeds": (LEAST_SEEDS, MOST_SEEDS)}


class Form:
    """The fields of a lesson. `read` returns its text, and `keep` saves a changed text. Each change reads the text
    again, because a busy page may process two changes at once."""

    def __init__(self, name: str, read: Callable[[], str], keep: Callable[[str], None], disabled: bool) -> None:
        self.name, self.read, self.keep, self.disabled = name, read, keep, disabled
        self.fields, self.body = edited.fields(read())

    @property
    def text(self) -> str:
        return self.read()

    def show(self) -> None:
        """Show the whole form."""
        for heading, draw in (("1 · Situation", self._situation), ("2 · Question", self._question),
                              ("3 · Runs", self._runs), ("4 · Check", self._check),
                              ("5 · Explanation", self._explanation)):
            with st.container(border=True, gap="small"):
                st.markdown(f"**{heading}**")
                draw()

    # ---- the parts

    def _situation(self) -> None:
        self._text("Title", "title", help="Read before the prediction: a question or a topic, not the answer.")
        left, right = st.columns([2, 1])
        with left:
            self._text("Topic", "topic", OWN_TOPIC, help="The heading under which the lesson is listed.")
        with right:
            self._whole("Minutes", "minutes", ("minutes",))
        self._text("Introduction", "introduction", area=True,
                   help="About three sentences on the setup, shown before the question. They must not give the "
                        "answer away.")

    def _question(self) -> None:
        question = _table(self.fields.get("question"))
        self._text("Question to the reader", ("question", "text"))
        if "draw" in question:
            st.caption("Readers answer this question by drawing a curve. Its settings are in the file below.")
            return
        choices = [str(each) for each in question.get("choices", [])]
        self._box(st.text_area, "Answers, one per line", "choices", "\n".join(choices), height=100,
                  take=lambda said: self._put(("question", "choices"), _lines(said)))
        right = question.get("right")
        if choices:
            place = right - 1 if isinstance(right, int) and 1 <= right <= len(choices) else 0
            self._choose("Correct answer", "right", range(len(choices)), place, choices.__getitem__,
                         lambda chosen: self._put(("question", "right"), chosen + 1))

    def _runs(self) -> None:
        runs = [_table(run) for run in self.fields.get("runs", [])]
        for place, run in enumerate(runs):
            with st.expander(literal(f"{run.get('label', '')}"), expanded=False, key=f"form:run:{place}"):
                self._run(place, run)
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.button("Add a run", icon=":material/add:", key="form:add", disabled=self.disabled
                      or len(runs) >= MOST_RUNS, on_click=self._do, args=(lambda: edited.with_run(self.text),))
            if len(runs) > 1:
                st.button("Remove the last run", icon=":material/remove:", key="form:remove", disabled=self.disabled,
                          on_click=self._put, args=(("runs", len(runs) - 1), None))
        seeds = self.fields.get("seeds")
        self._number("Seeds for each run", "seeds", BOUNDS["seeds"], len(seeds) if isinstance(seeds, list) else 3,
                     lambda count: self._put(("seeds",), list(range(count))),
                     help="Number of seeds for each run. A verdict needs 3.")

    def _run(self, place: int, run: Mapping[str, Any]) -> None:
        way: Way = ("runs", place)
        self._text("Label", (*way, "label"))
        if "preset" in run:
            preset = run["preset"] if run["preset"] in PRESETS else next(iter(PRESETS))
            self._choose("Preset", f"{place}:preset", list(PRESETS), preset, lambda key: PRESETS[key].label,
                         lambda key: self._put((*way, "preset"), key))
            return
        kind = kinds.kind(run["kind"]) if run.get("kind") in KINDS else KINDS["maze"]
        self._choose("World", f"{place}:kind", list(KINDS), kind.key, lambda key: KINDS[key].label,
                     lambda key: self._of_kind(place, key))
        left, middle, right = st.columns(3)
        rows, tasks = kind.algorithms, kind.tasks
        with left:
            row = rows.get(run.get("algorithm", ""), next(iter(rows.values())))
            self._choose("Algorithm", f"{place}:algorithm", list(rows), row.key, lambda key: rows[key].label,
                         lambda key: self._put((*way, "algorithm"), key))
        with middle:
            task = tasks.get(run.get("task", ""), next(iter(tasks.values())))
            self._choose("Task", f"{place}:task", list(tasks), task.key, lambda key: tasks[key].label,
                         lambda key: self._put((*way, "task"), key))
        with right:
            self._whole("Steps", f"{place}:steps", (*way, "steps"))
        self._knobs(place, knobs_of(row, task), _table(run.get("knobs")))

    def _of_kind(self, place: int, key: str) -> None:
        """Change the kind of run: take its first algorithm and its task, with knobs at their defaults."""
        kind, text = KINDS[key], self.text
        for field, value in (("kind", key), ("algorithm", next(iter(kind.algorithms))), ("task", kind.task),
                             ("knobs", {})):
            text = edited.changed(text, ("runs", place, field), value)
        self.keep(text)

    def _knobs(self, place: int, known: Sequence[Knob], given: Mapping[str, Any]) -> None:
        """Show the knobs that are not at their defaults, each with its value."""
        by_key = {knob.key: knob for knob in known}
        way: Way = ("runs", place, "knobs")

        def picked(keys: list[str]) -> None:
            self._put(way, {key: given.get(key, by_key[key].default) for key in keys})

        self._box(st.multiselect, "Changed knobs", f"{place}:knobs", [key for key in given if key in by_key],
                  options=list(by_key), format_func=lambda key: by_key[key].title, take=picked,
                  placeholder="Add a knob; all others keep their defaults")
        columns = st.columns(3)
        for at, (key, value) in enumerate((key, value) for key, value in given.items() if key in by_key):
            with columns[at % 3]:
                self._knob(f"{place}:{key}", by_key[key], value, partial(self._put, (*way, key)))

    def _knob(self, key: str, knob: Knob, value: Any, take: Take) -> None:
        if knob.choices or knob.type is bool:
            options: list[Any] = [True, False] if knob.type is bool else list(knob.choices)
            self._choose(knob.title, key, options, value if value in options else options[0], shown, take)
        elif knob.type is str:
            self._box(st.text_input, knob.title, key, str(value), take=take)
        elif isinstance(value, int | float):
            number = knob.type(value)
            self._box(st.number_input, knob.title, key, number, take=take,
                      **({"step": 1} if knob.type is int else {"format": "%g", "step": None}))

    def _check(self) -> None:
        names = [str(run["name"]) for run in map(_table, self.fields.get("runs", [])) if run.get("name")]
        parts = comparison.read(str(self.fields.get("check", "")))
        said = list(self.fields.get("sentences", []))
        st.caption("The claim holds if all comparisons hold over all seeds together.")
        for place, part in enumerate(parts):
            def put(new: Comparison | str, place: int = place) -> None:
                self._put(("check",), comparison.written([*parts[:place], new, *parts[place + 1:]]))
            if isinstance(part, str):
                self._box(st.text_input, "Comparison as a formula", f"{place}:formula", part, take=put,
                          help="docs/lessons.md lists the functions for formulas.")
            else:
                self._comparison(place, part, names, put)
            if place < len(said):
                self._box(st.text_input, "In words", f"{place}:sentence", str(said[place]),
                          take=partial(self._sentence, said, place))
        with st.container(horizontal=True):
            if names:
                metric = next((part.metric for part in parts if isinstance(part, Comparison)), "reward")
                more = Comparison("last", metric, names[0], True, names[1] if len(names) > 1 else "")
                st.button("Add a comparison", icon=":material/add:", key="form:compare", disabled=self.disabled,
                          on_click=self._checked, args=([*parts, more], said and [*said, "The new comparison holds"]))
            if len(parts) > 1:
                st.button("Remove the last one", icon=":material/remove:", key="form:uncompare",
                          disabled=self.disabled, on_click=self._checked, args=(parts[:-1], said[:len(parts) - 1]))

    def _sentence(self, said: Sequence[Any], place: int, sentence: str) -> None:
        self._put(("sentences",), [*said[:place], sentence, *said[place + 1:]])

    def _comparison(self, place: int, part: Comparison, names: Sequence[str], put: Take) -> None:
        labels = {str(run.get("name")): str(run.get("label")) for run in map(_table, self.fields.get("runs", []))}
        first, second, third = st.columns([1.2, 1.2, 1])
        with first:
            self._choose("Value", f"{place}:value", list(VALUES), part.value, lambda key: VALUES[key][2],
                         lambda key: put(replace(part, value=key)))
        with second:
            self._choose("of the metric", f"{place}:metric", list(METRICS), part.metric,
                         lambda key: f"{METRICS[key].label} ({key})", lambda key: put(replace(part, metric=key)))
        with third:
            self._choose("of the run", f"{place}:run", names, part.run, lambda key: labels.get(key, key),
                         lambda key: put(replace(part, run=key)))
        first, second, third = st.columns([1.2, 1.2, 1])
        with first:
            self._choose("is", f"{place}:more", [True, False], part.more,
                         {True: "higher than", False: "lower than"}.__getitem__,
                         lambda more: put(replace(part, more=more)))
        with second:
            self._choose("that of", f"{place}:other", [*names, ""], part.other,
                         lambda key: labels.get(key, key) if key else NUMBER, lambda key: put(replace(part, other=key)))
        with third:
            self._box(st.number_input, "by over" if part.other else "the number", f"{place}:by", float(part.by),
                      take=lambda by: put(replace(part, by=by)), format="%g", step=None)

    def _explanation(self) -> None:
        self._text("Claim", "claim", help="Shown after the prediction, with the verdict.")
        self._box(st.text_area, "Explanation, in Markdown", "body", self.body, height=140,
                  help="Shown with the verdict.", take=lambda said: self.keep(edited.with_explanation(self.text, said)))
        self._text("Source", "source", help="Paper, book or course in which the claim appears.")

    # ---- widgets

    def _text(self, label: str, path: str | Way, usual: str = "", area: bool = False,
              help: str = "") -> None:
        way: Way = (path,) if isinstance(path, str) else path
        value: Any = self.fields
        for key in way:
            value = value.get(key, usual) if isinstance(value, dict) else value[key]
        more = {"height": 110} if area else {}
        self._box(st.text_area if area else st.text_input, label, ":".join(map(str, way)), str(value), help=help,
                  take=lambda said: self._put(way, said), **more)

    def _whole(self, label: str, key: str, way: Way) -> None:
        value: Any = self.fields
        for part in way:
            value = value.get(part) if isinstance(value, dict) else value[part]
        bounds = BOUNDS[str(way[-1])]
        self._number(label, key, bounds, value if isinstance(value, int) else bounds[0],
                     lambda number: self._put(way, number))

    def _number(self, label: str, key: str, bounds: tuple[float, float], value: int, take: Take,
                help: str = "") -> None:
        low, high = map(int, bounds)
        self._box(st.number_input, label, key, min(max(value, low), high), take=take, min_value=low, max_value=high,
                  step=1, help=help)

    def _choose(self, label: str, key: str, options: Sequence[Any], value: Any, words: Callable[[Any], str],
                take: Take) -> None:
        there = list(options) if value in options else [value, *options]
        state = widget_state(f"form:{self.name}:{key}", value, of=tuple(there))
        st.selectbox(label, there, there.index(state.value), format_func=lambda one: words(one) if one in options else
                     str(one), key=state.key, disabled=self.disabled, on_change=self._take, args=(state, take))

    def _box(self, widget: Callable[..., Any], label: str, key: str, value: Any, *, take: Take, **more: Any) -> None:
        state = widget_state(f"form:{self.name}:{key}", value, of=more.get("options") and tuple(more["options"]))
        given = {"default": state.value} if "options" in more else {"value": state.value}
        widget(label, key=state.key, disabled=self.disabled, on_change=self._take, args=(state, take), **given, **more)

    def _take(self, state: Any, take: Take) -> None:
        value = state.taken()
        if value is not None:
            self._do(lambda: take(value))

    def _put(self, way: Way, value: Any) -> None:
        self._do(lambda: edited.changed(self.text, way, value))

    def _checked(self, parts: Sequence[Comparison | str], said: Sequence[str]) -> None:
        """Set the comparisons and their sentences."""
        def change() -> str:
            text = edited.changed(self.text, ["check"], comparison.written(parts))
            return edited.changed(text, ["sentences"], list(said)) if said else text
        self._do(change)

    def _do(self, change: Callable[[], str | None]) -> None:
        """Make a change and save the text; show the error if there is one."""
        try:
            text = change()
        except LabError as error:
            show_error(str(error))
            return
        if text is not None:
            self.keep(text)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
