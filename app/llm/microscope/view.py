"""The microscope's tab: what the link chooses, the component, and the sampler against the trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app import link, theme, tokens
from app.components.figure_chart import figure_chart
from app.components.microscope import EQUATION, microscope
from app.lab import active
from app.link import Param
from app.llm import probes
from app.llm.microscope import cards, payload, scatter
from app.llm.microscope.arithmetic import AFTER, MET
from app.llm.story import COMPLETION, ITEM, prompt_of
from app.training import equation, files, terms
from app.training.feed import Feed
from labcore.catalog.knob import Value
from labcore.catalog.right import check
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title

PART, SORT, FILTER = Param("part", ""), Param("sort", ""), Param("filter", "")
WHEN, COLOUR = Param("moment", MET, link.one_of((MET, AFTER))), Param("colour", "")
SAMPLER = Param("sampler", False, link.switch)
CHOICES: dict[str, Param[Any]] = {each.key: each for each in (PART, SORT, FILTER, ITEM, COMPLETION, WHEN, COLOUR)}


def show(run: RunRow, feed: Feed, step: int) -> None:
    """Show the newest samples up to `step`."""
    samples = files.newest(run.id, "samples", step)
    if samples is None:
        st.caption(probes.off(feed, step) or (
            "Completions appear here after the first steps." if active(run)
            else "This run has no samples: it ended before the first ones, or a clean-up deleted them."))
        return
    if scored := samples.get("scored"):
        left, right = st.columns([1, 3], gap="large")
        left.html(tokens.calibration_table(samples["calibration"]))
        right.html(tokens.scored_table(scored))
    found = cards.found(samples)
    if not found:
        st.caption(files.of_step(samples["step"], step))
        return
    elsewhere = run.spec.kind_row.elsewhere  # its credit assignment and its clip are unknown
    knobs = {} if elsewhere else feed.knobs(samples["step"])
    if not elsewhere:
        with st.container(key=EQUATION):
            st.latex(terms.coloured(equation.written(run.spec, knobs)))
    shown = _payload(run, samples, found, knobs)
    if _elsewhere(found[shown["kind"]], prompt_of(run.id)):
        st.caption("The prompt above is a watched prompt, not part of this step's batch. The completions below are "
                   "from the batch that the step trained on.")
    microscope(shown | {
        "run": run.id, "check": check(run.spec.task_row, knobs), "step": samples["step"],
        "part": files.of_groups(samples), "of": files.of_step(samples["step"], step)},
        key="microscope", on_choice=_choose)
    _sampler(run, samples)


def _payload(run: RunRow, samples: Mapping[str, Any], found: Mapping[str, Any], knobs: Mapping[str, Value],
             ) -> dict[str, Any]:
    kind = part if (part := link.get(PART)) in found else next(iter(found))
    items, of = found[kind], cards.KINDS[kind]
    item, completion = _chosen(kind, items, prompt_of(run.id))
    sort = chosen if (chosen := link.get(SORT)) in of.sorts else next(iter(of.sorts))
    filters = dict(cards.filters(kind, items))
    kept = chosen if (chosen := link.get(FILTER)) in filters else next(iter(filters))
    row = run.spec.row
    return payload.shelf(kind, items, knobs) | {
        "kinds": [[key, cards.KINDS[key].label, len(each)] for key, each in found.items()], "kind": kind, "sort": sort,
        "filter": kept, "chosen": [item, completion], "colour": link.get(COLOUR),
        "one": _inside((run.id, samples["step"], files.written(run.id, "samples", samples["step"]), kind, item),
                       completion, link.get(WHEN), tuple(knobs.items()), items[item]),
        "terms": {term.key: terms.colour(place) for place, term in enumerate(terms.of(
            row if run.spec.kind_row.elsewhere else equation.written(run.spec, knobs)))},
        "sources": {} if run.spec.kind_row.elsewhere else {
            family: vars(source) for family, source in equation.named_sources(row, knobs).items()}}


def _elsewhere(items: Sequence[cards.Item], prompt: str) -> bool:
    """True if a prompt is selected above that no item has."""
    return bool(prompt) and not any(each.get("prompt") == prompt for each in items)


@st.cache_data(max_entries=64, show_spinner=False)
def _inside(of: tuple[Any, ...], completion: int, when: str, knobs: tuple[tuple[str, Value], ...], _item: cards.Item,
            ) -> dict[str, Any]:
    """`payload.inside`, once for a completion of a file: of hundreds of tokens it takes a while."""
    return payload.inside(of[-2], _item, completion, when, dict(knobs))


def _chosen(kind: str, items: Sequence[cards.Item], prompt: str) -> tuple[int, int]:
    """Return the item and the completion that the link names. If they do not exist, choose the most informative ones:
    among the items with the selected `prompt`, or among all items if the batch has none."""
    item, completion = link.get(ITEM), link.get(COMPLETION) or 0
    if item is None or item >= len(items):
        same = [place for place, each in enumerate(items) if each.get("prompt") == prompt]
        within, completion = cards.telling(kind, [items[place] for place in same] or items)
        return same[within] if same else within, completion
    return item, completion if completion < len(items[item].get("completions", [0])) else 0


def _choose(choice: Mapping[str, Any]) -> None:
    """Take the user's choices in the component, by the names of the link's parameters; None is the default again."""
    for name, value in choice.items():
        link.put(CHOICES[name], CHOICES[name].default if value is None else value)


def _unfolded() -> None:
    link.put(SAMPLER, st.session_state["scope_sampler"])


def _sampler(run: RunRow, samples: Mapping[str, Any]) -> None:
    """The sampler's log-probs against the trainer's, of the tokens that were kept with both."""
    dots = scatter.dots(samples)
    if not dots:
        return
    folded = st.expander("Sampler–trainer difference", expanded=link.get(SAMPLER), key="scope_sampler",
                         on_change=_unfolded)
    if not folded.open:  # nothing is drawn that is not seen
        return
    with folded:
        figure_chart(scatter.figure(dots, theme.ground()), "scope_scatter", title="Sampler–trainer difference",
                     caption=f"{title(run)}, step {samples['step']:,}",
                     alt="The trainer's log-prob of each token against the sampler's, and their difference")
        st.caption(scatter.caption(dots, samples, run.spec.kind_row.elsewhere))
