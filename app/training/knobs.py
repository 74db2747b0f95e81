"""The left column: the next or the running run and its steps; below it the knobs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

import streamlit as st

from app import algorithms, memory, naming, number_boxes
from app.draft import Draft
from app.lab import errors_shown, lab
from app.marked import worded
from app.session import PROBLEM, show_error
from app.tokens import literal
from app.training import base_line, controls, data_preview, mix, more_knobs, pretrained_models, step_time
from app.training.feed import Feed
from app.training.uploads import uploader
from app.widget_state import widget_state
from labcore.catalog import kinds
from labcore.catalog.knob import Knob, Value
from labcore.catalog.llm.models import MODELS
from labcore.catalog.mix.row import can_be_mixed
from labcore.catalog.mix.summary import MixSummary
from labcore.catalog.summary import summary_of
from labcore.errors import LabError
from labcore.runs.spec.checks import WHOLE
from labcore.runs.spec.run_spec import knobs_of
from labcore.runs.spec.together import check_together
from labcore.runs.store.rows import RunRow

BESIDE = 11  # letters of an algorithm's name that find room beside the model


def setup(draft: Draft) -> None:
    """The choices that users make first: algorithm, task, model, seed and steps. The defaults work."""
    kind = draft.kind
    several = len(kind.models) > 1
    # The names of other models, of mixes and of some algorithms are long.
    short = several and draft.fields["model"] in kind.models and not draft.fields["mix"] \
        and len(draft.row.label) <= BESIDE
    left, right = st.columns(2, gap="small", wrap=False) if short else (st.container(), st.container())
    with left:
        _algorithm(draft)
    fitting = [key for key, row in kind.tasks.items() if draft.row.learns(row)]
    if draft.fields["task"] not in fitting and not kind.any_task:
        draft.fields["task"] = fitting[0]
    if several:
        with right:
            _pick(draft, "model", "Model", list(kind.models), model_label, accept_new_options=True,
                  help="A built-in size, or type a run: RUN or RUN@STEP.")
    if kind.pretrained:
        pretrained_models.show(draft)
    _pick(draft, "task", kind.task_title, fitting, lambda key: kinds.task(key, kind.key).label,
          accept_new_options=kind.any_task, help=draft.task_row.help)
    uploader(draft)
    _counts(draft, draft.fault())


def _algorithm(draft: Draft) -> None:
    """The named algorithms, then the user's mixes, and a new one."""
    kind = draft.kind
    options = algorithms.keys(kind, draft.begun().values())
    new = [algorithms.MIX] if any(map(can_be_mixed, kind.algorithms.values())) else []
    _pick(draft, "algorithm", "Algorithm", [*options, *new], algorithms.words(kind), draft.key,
          help=summary_of(draft.row, draft.values) or None)
    for fault in algorithms.saved()[1]:
        st.warning(literal(fault), icon=":material/rule:")


def before_start(draft: Draft) -> None:
    """The knobs of the next run."""
    _knobs(draft, _elsewhere(draft))


def model_label(key: str) -> str:
    """A built-in model with its size, another one by its name."""
    return f"{key} {MODELS[key].parameters}" if key in MODELS else naming.model(key)


def _pick(draft: Draft, field: str, title: str, options: list[str],
          words: Callable[[str], str], value: str = "", **more: Any) -> None:
    value = value or draft.fields[field]
    shown = widget_state(f"{field}:{draft.scope}", value, of=tuple(options))
    if value not in options:
        options = [*options, value]

    def changed() -> None:
        if chosen := shown.taken():
            draft.choose(field, chosen)

    st.selectbox(title, options, options.index(value), format_func=words, key=shown.key, on_change=changed, **more)


Elsewhere = tuple[tuple[str, str, str], dict[str, Value], str, MixSummary | None, str, dict[str, Value], str]


def _elsewhere(draft: Draft) -> Elsewhere:
    """The data about the knobs that the page shows elsewhere: the mix's name, the task, why it cannot run, and before a
    run the equation, what speaks against it, its memory, and its preset."""
    if not draft.new:
        return draft.identity, draft.of_task(), draft.fault(), None, "", {}, ""
    preset = draft.preset
    return (draft.identity, draft.of_task(), draft.fault(), mix.look_of(draft), draft.caution() + mix.of_numbers(draft),
            dict(draft.values) if memory.follows(draft) or step_time.follows(draft) else data_preview.follows(draft),
            preset.key if preset else "")


@st.fragment
def _knobs(draft: Draft, drawn: Elsewhere) -> None:
    """The knobs rerun alone: moving one redraws nothing else, but what is `drawn` of them elsewhere."""
    draft.look_again()
    if _elsewhere(draft) != drawn:
        st.rerun()
    mix.card(draft)
    widgets_of(draft)
    try:
        spec = draft.spec()
    except LabError as error:
        st.warning(literal(worded(str(error), knobs_of(draft.row, draft.task_row))), icon=":material/rule:")
    else:
        if len(draft.kind.models) > 1:
            base_line.show(draft, spec)
    draft.to_url()
    if draft.fault() != drawn[2]:  # a number that cannot be is no more in sight
        st.rerun()


def widgets_of(draft: Draft, without: Collection[str] = ()) -> None:
    """The knobs of the draft, its task's first."""
    target = controls.Target(draft.knob_scope, draft.values, draft.moved, usual=draft.usual_values)
    used = mix.in_use(draft.row, draft.declared, draft.values, draft.fields["mix"])
    shown = [knob for knob in used if knob.key not in without]
    _draw(target, shown, first={knob.key for knob in draft.task_row.knobs}, parts=mix.parts(draft))


@st.fragment
def _counts(draft: Draft, drawn: str) -> None:
    """The steps and the seed. They rerun alone, as the knobs do, but where `drawn`, why it cannot run, changes.
    """
    draft.look_again()
    if draft.fault() != drawn:
        st.rerun()
    left, right = st.columns(2, gap="small", wrap=False)
    with left:
        _count(draft, "steps", "Steps", draft.steps)
    with right:
        _count(draft, "seed", "Seed", draft.fields["seed"])
    draft.to_url()


def _count(draft: Draft, field: str, title: str, value: int) -> None:
    kept = draft.fields["steps"] if field == "steps" else draft.fields
    name = draft.fields["algorithm"] if field == "steps" else field
    number_boxes.number(draft.scope, field, title, value, WHOLE[field], partial(kept.__setitem__, name),
                        step=1 if field == "seed" else 10)


def running(run: RunRow) -> None:
    """The running algorithm and its steps, in place of the form."""
    spec = run.spec
    model = f" · {literal(model_label(spec.model))}" if len(spec.kind_row.models) > 1 else ""
    st.markdown(f"**{spec.row.label}** · {literal(spec.task_row.label)}{model}",
                help=summary_of(spec.row, spec.knobs) or None)
    st.caption(f"{spec.steps:,} steps · seed {spec.seed}")


@st.fragment
@errors_shown()
def while_going(run: RunRow, values: dict[str, Value]) -> None:
    """The knobs of a running run; `values` are the page's draft of them."""
    spec = run.spec
    if PROBLEM in st.session_state:  # what a knob was refused for is said on top of the page
        st.rerun()

    def send(knob: Knob, value: Value) -> None:
        check_together(spec.row, {**values, knob.key: value})  # said at once; what counts is what the worker says
        lab().store.ask(run.id, "set", {"knob": knob.key, "value": value})

    if base_line.waits_for_sft(run, lab().store):
        st.caption(f":material/hourglass_top: They take effect once {spec.row.label} starts.")
    usual = {knob.key: knob.default for knob in spec.declared}
    target = controls.Target(run.id, values, send, going=True, refused=show_error, usual=usual)
    _draw(target, mix.in_use(spec.row, spec.declared, values, spec.mix), first=set())


def values_of(run: RunRow, feed: Feed) -> dict[str, Value]:
    """The page's draft of a running run's knobs, brought up to the changes that the run logged since the last look."""
    draft: dict[str, Value] = st.session_state.setdefault(f"values:{run.id}", feed.knobs())
    followed = st.session_state.get(f"followed:{run.id}", feed.last_event)
    draft |= {change.knob: change.value for change in feed.history.changes if change.event > followed}
    st.session_state[f"followed:{run.id}"] = feed.last_event
    return draft


def _draw(target: controls.Target, knobs: Iterable[Knob], first: set[str], parts: Sequence[str] = ()) -> None:
    """`first` come first; `parts` are choices that stand open above them all, in their order."""
    number_boxes.forget(target.scope)
    knobs = sorted(knobs, key=lambda knob: knob.key not in first)
    plain = [knob for knob in knobs if not knob.advanced]
    if parts:
        with st.expander("Choices", expanded=True):
            controls.widgets(target, sorted((knob for knob in knobs if knob.key in parts),
                                            key=lambda knob: parts.index(knob.key)))
    controls.widgets(target, plain)
    numeric = [knob for knob in plain if controls.kind(knob) in ("slider", "stops")]
    with st.popover("Type exact values", icon=":material/keyboard:", width="stretch"):
        st.caption("Any value within the bounds, beyond the sliders' range too.")
        for knob in numeric:
            controls.number(target, knob)
    controls.reset_all(target, knobs)
    more_knobs.show(target, plain, [knob for knob in knobs if knob.advanced and knob.key not in parts])
