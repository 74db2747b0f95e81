"""A mix of the user's own on the page: a card above its knobs, and beside them its equation and its cautions.

The card is there as soon as a choice is not the named algorithm's.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

import streamlit as st

from app import algorithms, naming
from app.draft import Draft
from app.marked import worded
from app.session import show_error
from app.tokens import literal
from app.widget_state import widget_state
from labcore.catalog import kinds
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.knob import Knob, Value
from labcore.catalog.mix import row as mixed
from labcore.catalog.mix.cautions import of_run
from labcore.catalog.mix.nearest import PARTS, Difference, Nearest
from labcore.catalog.mix.summary import MixSummary, summarise
from labcore.errors import LabError
from labcore.runs import mixes
from labcore.runs.files.paths import read_only
from labcore.runs.mixes import Mix
from labcore.runs.spec.run_spec import knobs_of

CSS = """
<style>
.rl-mix{font-size:14px;line-height:1.4;overflow-wrap:anywhere}.rl-mix b{font-weight:600}
.rl-mix p{font-size:13px;line-height:1.4;margin:4px 0 0}.rl-mix p b{display:block}.rl-mix s{opacity:.66}
.rl-beware p{font-size:14px;line-height:1.45;margin:.1rem 0 5px;padding-left:1.4em;text-indent:-1.4em}
.rl-beware p::before{content:"⚠";color:#C98500;display:inline-block;width:1.4em;text-indent:0}
</style>"""


def look_of(draft: Draft) -> MixSummary | None:
    """The summary of the draft's choices; None if they are those of its named algorithm."""
    row = draft.row
    if not mixed.can_be_mixed(row):
        return None
    seen = _summary(row.key, tuple(draft.values.items()), draft.kind.key, draft.task_row.key, draft.weights)
    # A choice that a number alone puts out of use, as β = 0 does the place of the KL, is not another one.
    parts = tuple(each for each in seen.nearest.parts if draft.values.get(each.knob.key) != each.theirs)
    changed = draft.fields["mix"] or seen.nearest.row.key != row.key or parts
    # Numbers alone do not make another algorithm, and are redrawn by their own knobs.
    return replace(seen, nearest=replace(seen.nearest, parts=parts, numbers=())) if changed else None


@lru_cache(maxsize=32)
def _summary(algorithm: str, values: tuple[tuple[str, Value], ...], kind: str, task: str, weights: str) -> MixSummary:
    """Several parts of a page ask for it, and it compares the values with each algorithm of the loop."""
    return summarise(algorithm, dict(values), kinds.task(task, kind), weights)


def of_numbers(draft: Draft) -> str:
    """Cautions about numbers alone. Cautions about other choices are shown with the equation."""
    row = draft.row
    usual = {knob.key: knob.default for knob in draft.declared}
    return "" if look_of(draft) else " ".join(_worded(draft, of_run(draft.kind.key, row.key, draft.values, usual)))


def _worded(draft: Draft, said: Iterable[str]) -> list[str]:
    return [worded(each, knobs_of(draft.row, draft.task_row)) for each in said]


def in_use(row: Algorithm, declared: Iterable[Knob], values: Mapping[str, Value], name: str) -> list[Knob]:
    """The `declared` knobs that a run uses. A mix, which has a `name`, does not use the knobs of choices that it did
    not take."""
    return [knob for knob in declared if not (name and mixed.idle(row.key, knob.key, values))]


def parts(draft: Draft) -> tuple[str, ...]:
    """The choices that are unfolded in the form: those of a mix."""
    known = {knob.key for knob in draft.row.knobs}
    return tuple(key for key in PARTS if key in known) if draft.fields["mix"] else ()


# ---- the card ------------------------------------------------------------------------------------------------------


def card(draft: Draft) -> None:
    """The algorithm nearest to the choices, and the mix's name, to be saved."""
    seen = look_of(draft)
    if seen is None:
        return
    with st.container(border=True, key="mix"):
        _name(draft)
        st.html(f"{CSS}<div class='rl-mix'>{sentence(seen.nearest)}{differences(seen.nearest.parts)}</div>")
        if not draft.new:
            with st.popover(f"Equation and {_count(len(seen.cautions))}", icon=":material/function:", width="stretch"):
                _details(draft, seen)


def sentence(nearest: Nearest) -> str:
    """The named algorithm that is nearest, or the same, as HTML."""
    label = html.escape(nearest.row.label)
    if not nearest.parts:
        return f"These choices are <b>{label}</b>."
    return f"Nearest: <b>{label}</b>. Differs in:"


def differences(found: Iterable[Difference]) -> str:
    """The choices that differ from the named algorithm's, as HTML."""
    return "".join(f"<p><b>{html.escape(each.knob.title)}</b><s>{_written(each.knob, each.theirs)}</s> → "
                   f"{_written(each.knob, each.own)}</p>" for each in found)


def _written(knob: Knob, value: Value) -> str:
    return html.escape(naming.written(knob.key, value))


def _count(cautions: int) -> str:
    return f"{cautions} caution{'' if cautions == 1 else 's'}" if cautions else "no cautions"


def _name(draft: Draft) -> None:
    """The mix's name and what can be done with it; of changed choices without a name how to give them one."""
    name = draft.fields["mix"]
    if not name:
        st.button("Name this mix", icon=":material/label:", key="mix:begin", width="stretch",
                  on_click=draft.choose, args=("algorithm", algorithms.MIX),
                  help="A mix has a name of its own, every knob of its loop, and can be saved")
        return
    there = algorithms.saved_as(name)
    if there is None:
        _text(draft, "Name of your mix", lambda new: _give_name(draft, new))
        st.button("Save this mix", icon=":material/save:", key="mix:save", width="stretch",
                  on_click=_save, args=(draft,), disabled=read_only(),
                  help="Adds it to the list of algorithms, under Your mixes")
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"**{literal(name)}**", width="stretch")
        with st.popover("", icon=":material/more_vert:", help="Rename, copy or delete it"):
            _text(draft, "Rename it", lambda new: _renamed(draft, new))
            st.button("Copy it", icon=":material/content_copy:", key="mix:copy", on_click=draft.choose,
                      args=("algorithm", algorithms.MIX), help="A new mix with these choices")
            st.button("Delete it", icon=":material/delete:", key="mix:delete", on_click=_deleted, args=(draft,),
                      disabled=read_only(),
                      help="Runs of this mix are kept")
    if _made(draft) != there and not read_only():
        st.button("Save the changes", icon=":material/save:", key="mix:replace", width="stretch", on_click=_save,
                  args=(draft, True))


def _text(draft: Draft, title: str, take: Callable[[str], object]) -> None:
    box = widget_state(f"mix:name:{draft.scope}", draft.fields["mix"])

    def changed() -> None:
        new = (box.taken() or "").strip()
        if new and new != draft.fields["mix"]:
            _or_error(lambda: take(new))
        if draft.fields["mix"] != new:
            box.back()

    st.text_input(title, box.value, max_chars=mixed.LONGEST, key=box.key, on_change=changed)


def _or_error(do: Callable[[], object]) -> None:
    """Every fault is one sentence on the page."""
    try:
        do()
    except LabError as error:
        show_error(str(error))


def _give_name(draft: Draft, new: str) -> None:
    """Give the draft's mix another name, its knobs along with it."""
    mixed.check_name(new)
    kept = draft.fields["knobs"].pop(draft.place)
    draft.fields["mix"] = new
    draft.fields["knobs"][draft.place] = kept


def _renamed(draft: Draft, new: str) -> None:
    mixes.rename(draft.fields["mix"], new)
    _give_name(draft, new)


def _made(draft: Draft) -> Mix | None:
    """The mix as it would be saved; None where it cannot be."""
    try:
        return mixes.of_values(draft.fields["mix"], draft.fields["algorithm"], draft.values, draft.task_row,
                               draft.weights)
    except LabError:
        return None


def _save(draft: Draft, replacing: bool = False) -> None:
    _or_error(lambda: mixes.save(mixes.of_spec(draft.spec(), draft.fields["mix"]), replacing))


def _deleted(draft: Draft) -> None:
    _or_error(lambda: mixes.delete(draft.fields["mix"]))


# ---- beside the knobs ----------------------------------------------------------------------------------------------


def details(draft: Draft) -> None:
    """Before a run: the equation of the choices, and their cautions."""
    seen = look_of(draft)
    if seen is not None:
        with st.container(border=True, key="mix_details"):
            _details(draft, seen)


def _details(draft: Draft, seen: MixSummary) -> None:
    st.latex(seen.latex)
    if seen.cautions:
        said = "".join(f"<p>{html.escape(each)}</p>" for each in _worded(draft, seen.cautions))
        st.html(f"{CSS}<div class='rl-beware'>{said}</div>")
