"""Start a comparison: the same start for several algorithms, or one algorithm with knobs at several values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st

from app import algorithms, cost, link, number_boxes, session
from app.compare.launch import duration_line, planning
from app.compare.place import CURVES, Place, go
from app.lab import errors_shown, lab
from app.link import Param
from app.marked import worded
from app.plan import Plan
from app.tokens import literal
from app.training import pretrained_models
from app.training.knobs import model_label, widgets_of
from app.training.uploads import uploader
from app.widget_state import widget_state
from labcore.catalog import kinds
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.knob import Knob
from labcore.catalog.metrics import METRICS
from labcore.errors import LabError
from labcore.llm.sizing.cost import BESIDE, beside, is_named
from labcore.runs import halving, sweep
from labcore.runs.files.paths import max_runs, read_only
from labcore.runs.halving import FACTORS, Halving
from labcore.runs.lists import marks
from labcore.runs.spec.checks import WHOLE
from labcore.runs.spec.model_names import model_of_name, name_of_model
from labcore.runs.spec.run_spec import RunSpec, knobs_of
from labcore.runs.store.rows import APART

WAYS = {"algorithms": "Algorithms", "sweep": "Values of a knob"}
STOPPING = {False: "None", True: "Successive halving"}
PLACES = ("Knob", "Second knob", "Third knob", "Fourth knob")
PLAN: Param[dict[str, Any]] = Param("new", {}, planning.of_link)


@st.fragment
@errors_shown()
def form() -> None:
    """The whole form, down to the one button that starts everything."""
    place = st.session_state.get("launch") or _opened()
    with st.container(border=True, key="launch"):
        left, right = st.columns(2, gap="small", vertical_alignment="bottom")
        with left:
            _choose(place, "way", "Compare", WAYS)
        with right:
            _choose(place, "kind", "World", {key: row.label for key, row in kinds.KINDS.items()})
        plan = Plan(place["kind"])
        _task(plan, place["way"])
        (_algorithms if place["way"] == "algorithms" else _axes)(plan)
        _counts(plan)
        if place["way"] == "sweep":
            _early_stopping(plan)
        _to_url(place, plan)
        _start(plan, _of_algorithms if place["way"] == "algorithms" else _of_axes)


def _opened() -> dict[str, str]:
    """The plan of the link, where it holds one."""
    place = st.session_state["launch"] = {"way": "algorithms", "kind": "llm"}
    values, faults = link.parsed([PLAN], link.query())
    for fault in faults:
        st.warning(literal(fault.why), icon=":material/error:")
    found = values.get(PLAN.key, {})
    place |= {key: found.pop(key) for key in tuple(place) if key in found}
    found |= {key: model_of_name(found[key]) for key in ("model",) if key in found}
    Plan(place["kind"]).fields.update(found)
    return place


def _to_url(place: dict[str, str], plan: Plan) -> None:
    """Every choice that is not usual, so that a copied link opens the same form."""
    fields = plan.fields | {"model": name_of_model(plan.fields["model"])}
    fields_moved = planning.to_link(place["way"], place["kind"], fields, plan.usual() | {"knobs": plan.untouched()})
    if not set(link.query()) - {PLAN.key}:
        link.replace_all({PLAN.key: fields_moved or None})


def _choose(place: dict[str, str], field: str, title: str, options: dict[str, str]) -> None:
    shown = widget_state(f"launch:{field}", place[field])

    def changed() -> None:
        place[field] = shown.taken()

    st.segmented_control(title, list(options), format_func=options.__getitem__, default=shown.value, required=True,
                         key=shown.key, on_change=changed)


def _select(plan: Plan, field: str, title: str, options: list[str], words: Callable[[str], str], chosen: str = "",
            **more: Any) -> None:
    shown = widget_state(f"{plan.scope}:{field}", chosen or plan.fields[field], of=tuple(options))
    if shown.value not in options:
        options = [*options, shown.value]

    def changed() -> None:
        if chosen := shown.taken():
            plan.choose(field, chosen)

    st.selectbox(title, options, options.index(shown.value), format_func=words, key=shown.key, on_change=changed,
                 **more)


def _task(plan: Plan, way: str) -> None:
    kind = plan.kind
    several = len(kind.models) > 1
    left, right = st.columns(2, gap="small") if several else (st.container(), None)
    with left:
        _select(plan, "task", kind.task_title, list(kind.tasks), lambda key: kinds.task(key, kind.key).label,
                accept_new_options=kind.any_task, help=plan.task_row.help)
    if right is not None:
        with right:
            _select(plan, "model", "Model", list(kind.models), model_label, accept_new_options=True,
                    help="A built-in size, or type a run: RUN or RUN@STEP.")
            if kind.pretrained:
                pretrained_models.show(plan)
    uploader(plan, _rows(plan) if way == "algorithms" else ())


def _rows(plan: Plan) -> list[Algorithm]:
    """The algorithms that are compared."""
    rows = []
    for key in plan.fields["algorithms"]:
        with plan.turned_to(key):
            rows.append(plan.row)
    return rows


def _fitting(plan: Plan) -> list[str]:
    return algorithms.keys(plan.kind, plan.begun().values(), plan.task_row)


def _algorithms(plan: Plan) -> None:
    fitting = _fitting(plan)
    chosen = [key for key in plan.fields["algorithms"] if key in fitting]
    shown = widget_state(f"{plan.scope}:algorithms", chosen, of=tuple(fitting))

    def changed() -> None:
        plan.fields["algorithms"] = shown.taken()

    words = algorithms.words(plan.kind)
    labels = {key: words(key) for key in fitting}
    st.multiselect("Algorithms", fitting, shown.value, format_func=labels.__getitem__, key=shown.key, on_change=changed)
    if not chosen:
        return
    fold = st.expander("Knobs of each algorithm", key=f"{plan.scope}:knobs", on_change="rerun")
    if fold.open:
        with fold:
            edited = st.segmented_control("Knobs of", chosen, format_func=labels.__getitem__, default=chosen[0],
                                          required=True, key=f"{plan.scope}:edited:{','.join(chosen)}")
            with plan.turned_to(edited):
                widgets_of(plan)


def _axes(plan: Plan) -> None:
    fitting = _fitting(plan)
    if plan.key not in fitting:
        plan.choose("algorithm", fitting[0])
    _select(plan, "algorithm", "Algorithm", fitting, algorithms.words(plan.kind), plan.key)
    known = {knob.key: knob for knob in plan.declared if knob.type is not str or knob.choices}
    kept = plan.fields["axes"].setdefault(plan.row.key, [_first(known)])
    kept[:] = [(key, text) for key, text in kept if key in known] or [_first(known)]
    for place in range(min(len(kept) + 1, sweep.MOST_AXES)):  # one more than there are, to add it
        _axis(plan, kept, place, known)
    fold = st.expander("Other knobs", key=f"{plan.scope}:other_knobs", on_change="rerun")
    if fold.open:
        with fold:
            widgets_of(plan, without={key for key, _ in kept})


def _first(known: dict[str, Knob]) -> tuple[str, str]:
    key = next(key for key in ("beta", "learning_rate", "alpha", *known) if key in known)
    return key, planning.written(planning.suggested(known[key]))


def _axis(plan: Plan, kept: list[tuple[str, str]], place: int, known: dict[str, Knob]) -> None:
    """A knob of the sweep and its values; all but the first one may be left out."""
    key, text = kept[place] if place < len(kept) else ("", "")
    taken = {other for index, (other, _) in enumerate(kept) if index != place}
    offered = [each for each in ([""] if place else []) + list(known) if each not in taken]
    knob_box = widget_state(f"{plan.scope}:{plan.row.key}:axis{place}", key, of=tuple(offered))
    values_box = widget_state(f"{plan.scope}:{plan.row.key}:values{place}:{key}", text)

    def knob_chosen() -> None:
        chosen = knob_box.taken()
        new = [(chosen, planning.written(planning.suggested(known[chosen])))] if chosen else []
        kept[place:place + 1] = new

    def values_typed() -> None:
        kept[place] = (key, values_box.taken())

    left, right = st.columns([1, 1.6], gap="small")
    left.selectbox(PLACES[place], offered, offered.index(key), key=knob_box.key,
                   format_func=lambda each: known[each].title if each else "none", on_change=knob_chosen)
    if key:
        right.text_input(f"Values of {known[key].name}", values_box.value, key=values_box.key, on_change=values_typed,
                         help=known[key].help)


def _counts(plan: Plan) -> None:
    number_boxes.forget(plan.scope)
    boxes = (("seeds", "Seeds", (1, planning.MOST_SEEDS), "A verdict needs at least three seeds."),
             ("seed", "First seed", WHOLE["seed"], ""),
             ("limit", "Steps", WHOLE["steps"], "Empty: the default of each algorithm."))
    for column, (field, title, bounds, help) in zip(st.columns(3, gap="small"), boxes, strict=True):
        number_boxes.number(plan.scope, field, title, plan.fields[field], bounds,
                            partial(plan.fields.__setitem__, field), column, help, placeholder="default")


def _of_algorithms(plan: Plan) -> list[RunSpec]:
    chosen = [key for key in plan.fields["algorithms"] if key in _fitting(plan)]
    if not chosen:
        raise LabError("Choose at least one algorithm.")
    return planning.interleaved([sweep.grid(plan.of(key), {}, plan.seeds) for key in chosen])


def _of_axes(plan: Plan) -> list[RunSpec]:
    known = {knob.key: knob for knob in knobs_of(plan.row, plan.task_row)}
    axes = {key: planning.values_in(known[key], text) for key, text in plan.fields["axes"][plan.row.key]}
    spec = plan.of(plan.key, {key: values[0] for key, values in axes.items()})
    return sweep.grid(spec, axes, plan.seeds)


def _start(plan: Plan, specs_of: Callable[[Plan], list[RunSpec]]) -> None:
    """The summary of the comparison, and the button that starts it."""
    try:
        specs = specs_of(plan)
        if len(specs) > sweep.MOST_RUNS:
            raise LabError(f"This comparison has {len(specs):,} runs; the limit is {sweep.MOST_RUNS:,}. Choose fewer "
                           f"algorithms or seeds.")
        stopping = Halving(**plan.fields["early"]) if plan.fields["early"] and specs_of is _of_axes else None
        if stopping:
            halving.check(stopping, specs)
        fault = ""
    except LabError as error:
        specs, fault = [], worded(str(error), knobs_of(plan.row, plan.task_row))
    places = max_runs()
    name, project = _labels()
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        many = f"{len(specs):,} run{'s' if len(specs) != 1 else ''}"
        if st.button(f"Start {many}" if specs else "Start", type="primary", icon=":material/play_arrow:",
                     disabled=not specs or read_only(), key="launch:start"):
            _launch(specs, "sweep" if specs_of is _of_axes else CURVES, stopping, name, project)
            st.rerun()  # the whole page, not this form
        if fault:
            st.warning(literal(fault), icon=":material/rule:")
        else:
            st.caption(literal(f"{duration_line.about(specs, places)} {planning.start_of(specs)}"), width="stretch")
    by_algorithm = {spec.row.label: spec for spec in specs}
    if specs and specs_of is _of_algorithms:
        if changes := planning.moved(by_algorithm):
            st.caption(literal(f"Changed from the defaults: {'; '.join(changes)}."))
        if plan.kind.key == "llm":
            cost.show(_beside(list(by_algorithm.values())), "launch")


def _beside(specs: list[RunSpec]) -> list[RunSpec]:
    """The comparison's algorithms, and the one that costs are compared with."""
    with_it = [] if any(is_named(spec, BESIDE) for spec in specs) else beside(specs[0], [BESIDE])[1:]
    return [*with_it, *specs]


def _labels() -> tuple[str, str]:
    """The name of the comparison and the project of its runs, both optional."""
    left, right = st.columns(2, gap="small")
    name = left.text_input("Name", key="launch:name", max_chars=marks.MOST_PROJECT, placeholder="optional",
                           help="Name of this comparison in lists")
    known = [each for each in lab().store.projects() if each not in APART]
    project = right.selectbox("Project", known, None, key="launch:project", accept_new_options=True,
                              placeholder="optional", help="A label that groups runs. Type a new one, then Enter.")
    return name, project or ""


def _launch(specs: list[RunSpec], view: str, stopping: Halving | None, name: str, project: str) -> None:
    """Queue them all and open the comparison."""
    try:
        sweep_id = sweep.queue(lab().store, specs, early=stopping, name=marks.project_name(name, "sweep"),
                               project=marks.project_name(project))
        lab().launcher.wake()
    except LabError as error:
        session.show_error(str(error))
        return
    go(Place(sweep=sweep_id, view=view))


# ---------------------------------------------------------------- early stopping

def _early_stopping(plan: Plan) -> None:
    """None, or successive halving with its metric, its first step and the share that continues."""
    shown = widget_state(f"{plan.scope}:early", plan.fields["early"] is not None)

    def changed() -> None:
        plan.fields["early"] = vars(_usual(plan)) if shown.taken() else None

    st.segmented_control("Early stopping", list(STOPPING), format_func=STOPPING.__getitem__, default=shown.value,
                         required=True, key=shown.key, on_change=changed,
                         help="Stop worse runs early, so that the better ones finish sooner. Optuna decides. A stopped "
                              "run keeps a checkpoint.")
    if plan.fields["early"] is not None:
        _details(plan, plan.fields["early"])


def _usual(plan: Plan) -> Halving:
    try:
        return halving.usual(plan.of(plan.key))
    except LabError:  # a setting is wrong, as the form says
        return Halving("reward", -(-plan.steps // 9))


def _details(plan: Plan, fields: dict[str, Any]) -> None:
    try:
        offered = halving.metrics_of(plan.of(plan.key))
    except LabError:
        offered = []
    offered = offered if fields["metric"] in offered else [*offered, fields["metric"]]
    metric, first, share = st.columns([1.6, 1, 1], gap="small")
    by = widget_state(f"{plan.scope}:early_metric", fields["metric"], of=tuple(offered))
    metric.selectbox("Metric", offered, offered.index(by.value), format_func=lambda key: METRICS[key].label,
                     key=by.key, on_change=lambda: fields.update(metric=by.taken()))
    for column, field, title, bounds, help in (
            (first, "min_steps", "Earliest step", WHOLE["steps"],
             "A run is first judged after this many steps, then at this many times the reduction factor, and so on."),
            (share, "factor", "Reduction factor", FACTORS,
             "3: at each judgement a run continues only if it is among the best third of the runs that have reached "
             "that step.")):
        number_boxes.number(plan.scope, field, title, fields[field], bounds, partial(fields.__setitem__, field), column,
                            help)
