"""Choose the models side by side: the runs that can answer, and the training stage of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import streamlit as st

from app import naming
from app.lab import lab
from app.playground.place import MOST_MODELS, Place, go, now
from app.session import missing, page_of, runs_of
from app.theme import ground, on, palette
from app.tokens import literal
from app.widget_state import widget_state
from labcore.analysis.compare.groups import groups
from labcore.catalog import kinds
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from labcore.runs.models import offered, with_checkpoint
from labcore.runs.spec.model_names import BASE, START, Model, parse
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import parent_title
from labcore.runs.titles import title as title_of
from labcore.runs.traces import trace

OF_SWEEP = 12  # newest runs of each sweep that are offered
LETTERS = "ABC"


def able() -> list[RunRow]:
    """The newest language-model runs that have a checkpoint; runs that diverged are last, because their policies are
    broken."""
    runs = {run.id: run for run in runs_of("llm", of_sweep=OF_SWEEP)}
    return sorted((runs[run_id] for run_id in with_checkpoint(list(runs))), key=lambda run: run.state == "diverged")


def usual(runs: Sequence[RunRow]) -> tuple[str, ...]:
    """Return the models that a page shows by default: the newest run that was trained, beside its base."""
    trained = [run for run in runs if run.spec.row.loop != "sft"]
    first = next((run for run in trained if run.step), (trained or runs)[0])
    return Model(first.id, BASE).name, first.id


def fitting(place: Place) -> Place:
    """The place without runs that answer no prompts; says so, and leads to where they are looked at."""
    kept = []
    for name in place.models:
        run = lab().find(parse(name).run)
        if run is None:
            st.warning(literal(missing(parse(name).run)), icon=":material/error:")
        elif run.spec.kind != "llm":
            kind = kinds.kind(run.spec.kind)
            with st.container(horizontal=True, vertical_alignment="center"):
                st.info(f"{literal(title_of(run))} learnt to act in a world and cannot answer prompts. Watch it play "
                        f"on its own page.", icon=":material/info:")
                st.page_link(page_of(kind.key), label=f"Open in {kind.label}", icon=":material/open_in_full:",
                             query_params={"run": run.id})
        else:
            kept.append(name)
    return replace(place, models=tuple(kept))


def to_choose(ids: Sequence[str]) -> dict[str, str]:
    """Runs to choose from in words, by their ids; one that is not there keeps its id."""
    there = lab().store.runs_named(ids)
    return {run_id: naming.to_choose(there[run_id]) if run_id in there else run_id for run_id in ids}


def pick(place: Place, runs: Sequence[RunRow]) -> None:
    """The slots, one above the other; each is a run and a stage."""
    for slot, name in enumerate(place.models):
        _slot(place, slot, parse(name), runs)
    if len(place.models) < MOST_MODELS:
        more = next((run.id for run in runs if run.id not in place.models), Model(runs[0].id, BASE).name)
        st.button("Add a model", icon=":material/add:", on_click=_add, args=(more, len(place.models)),
                  help="Up to three answer side by side", width="stretch")


def _answering() -> list[str]:
    """The models of the link as it is by now, without what `fitting` leaves out."""
    found = [(name, lab().find(parse(name).run)) for name in now().models]
    return [name for name, run in found if run is not None and run.spec.kind == "llm"]


def _add(name: str, drawn: int) -> None:
    """Add a model once: a second click may come before the page with `drawn` models is drawn again."""
    names = _answering()
    if len(names) == drawn:
        go(models=(*names, name))


def _put(slot: int, drawn: str, name: str | None) -> None:
    """Another model in the slot that shows `drawn`, or none. Slots before it may have gone since it was drawn."""
    names = _answering()
    at = names.index(drawn) if drawn in names and names[slot:slot + 1] != [drawn] else slot
    if at < len(names) and (name or len(names) > 1):
        go(models=(*names[:at], *([name] if name else []), *names[at + 1:]))


def _slot(place: Place, slot: int, model: Model, runs: Sequence[RunRow]) -> None:
    def to(name: str | None) -> None:
        _put(slot, place.models[slot], name)

    ids = [run.id for run in runs]
    ids += [] if model.run in ids else [model.run]
    words = to_choose(ids)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"slot_{slot}"):
        st.html(badge(slot), width="content")
        run = widget_state(f"playground:run:{slot}", model.run, tuple(words.items()))
        st.selectbox(f"Model {LETTERS[slot]}", ids, ids.index(run.value), key=run.key, label_visibility="collapsed",
                     format_func=words.__getitem__, on_change=lambda: to(run.taken()), width="stretch")
        if len(place.models) > 1:
            st.button("", icon=":material/close:", key=f"remove:{slot}", on_click=to, args=(None,), type="tertiary",
                      help=f"Remove {LETTERS[slot]}")
    _stage(slot, model, to)


def badge(slot: int) -> str:
    """The letter of a slot in its colour: HTML."""
    colour = palette(ground())[slot]
    return f'<span class="rl-letter" style="background:{colour};color:{on(colour)}">{LETTERS[slot]}</span>'


def _stage(slot: int, model: Model, to: Callable[[str], None]) -> None:
    """A slider along the run's training, from untrained weights to its newest checkpoint, which stays the newest."""
    stages = [each.name for each in offered(model.run)]
    present = model.pinned.name if model.step is None and not model.stage else model.name
    if present not in stages:  # a checkpoint that went when others came
        stages = [*stages[:-1], present, *stages[-1:]]
    newest, best = stages[-1], Model(model.run, step=checkpoint.best_step(run_folder(model.run))).name

    def moved() -> None:
        name = shown.taken()
        to(model.run if name == newest and not parse(name).stage else name)

    shown = widget_state(f"playground:stage:{slot}", present, tuple(stages))
    if len(stages) > 1:
        st.select_slider("Stage", stages, shown.value, key=shown.key, on_change=moved, label_visibility="collapsed",
                         format_func=lambda name: short(name, newest, best))


def short(name: str, newest: str = "", best: str = "") -> str:
    """A stage in a word or two.

    >>> short("base:grpo-sort-ab12"), short("grpo-sort-ab12@40"), short("a@60", newest="a@60")
    ('base', 'step 40', 'newest: step 60')
    >>> short("a@40", newest="a@60", best="a@40"), short("a@60", newest="a@60", best="a@60")
    ('best: step 40', 'newest and best: step 60')
    """
    model = parse(name)
    if model.stage:
        return {BASE: "base", START: "untrained"}[model.stage]
    marks = " and ".join(mark for mark, of in (("newest", newest), ("best", best)) if name == of)
    return f"{marks}{': ' if marks else ''}step {model.step:,}"


def titles(names: Sequence[str]) -> list[str]:
    """Some models in words, side by side: runs of one algorithm are named by the settings that differ."""
    learnt = _learnt([parse(name).run for name in names if not parse(name).stage])
    return [naming.model_title(name, learnt.get(parse(name).run, "")) for name in names]


def runs_of_models(names: Sequence[str]) -> list[str]:
    """The title of each model's run; its id where the run is gone."""
    there = lab().store.runs_named([parse(name).run for name in names])
    return [title_of(there[run]) if (run := parse(name).run) in there else run for name in names]


def _learnt(run_ids: Sequence[str]) -> dict[str, str]:
    """Return by run its algorithm and settings as Compare writes them, "GRPO β 0.2".

    The seed is added where nothing else differs.
    """
    rows = [row for row in map(lab().find, dict.fromkeys(run_ids)) if row is not None]
    learnt: dict[str, str] = {}
    store = lab().store
    traces = [trace(row, (), store.events_after(row.id), parent=parent_title(store, row.spec)) for row in rows]
    for group in groups(traces, naming.setting, naming.preset):
        of = {row.id: row.spec.seed for row in rows if row.id in (*group.repeats, *(each.run for each in group.traces))}
        several = len({*of.values()}) > 1
        learnt |= {run: f"{group.label}{f' seed {seed}' if several else ''}" for run, seed in of.items()}
    return learnt
