"""The verdict line above every view that compares results: the best group, and the cost at which groups are compared.
The link holds the choice."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import replace

import streamlit as st

from app import theme
from app.compare import wording
from app.compare.data import Chosen, look_of
from app.compare.place import change
from app.widget_state import widget_state
from labcore.analysis.compare import budget
from labcore.analysis.compare.best import BEST, Standing, criteria, spent, standing
from labcore.analysis.compare.table import Group, apart
from labcore.catalog.metrics import METRICS
from labcore.runs.store.rows import ACTIVE
from labcore.runs.traces import Trace


def line(chosen: Chosen, found: Standing | None) -> None:
    """Who is ahead at each equal cost, the cost that the views judge by, and why there is no verdict at the end."""
    able, names = offered(chosen), names_of(chosen)
    if found is None:
        _say("Nothing to compare before the first steps." if chosen.active else
             why_not_at_the_end(chosen, names) or "None of these runs made a step.")
        return
    if len(found.means) < 2:
        return
    if chosen.place.by not in ("", budget.FINAL, *able) and not chosen.active:
        st.warning(f"These runs cannot be compared {wording.judged(chosen.place.by)}, so they are compared "
                   f"{wording.judged(found.criterion)}.", icon=":material/error:")
    stands = stands_of(chosen, found)
    left, right = st.columns([2.6 if len(able) < 4 else 1.3, 1], gap="medium") if len(able) > 1 else (
        st.container(), None)
    with left:
        _say(sentence(stands, chosen, names), asides(found, chosen, names))
    if right:
        shown = widget_state("compare:by", found.criterion, tuple(able))
        right.segmented_control("Compared at", able, default=shown.value, key=shown.key, required=True,
                                label_visibility="collapsed", format_func=wording.switch,
                                on_change=lambda: change(by="" if shown.taken() == able[0] else shown.value))
    st.html(wording.cards(stands, METRICS[chosen.metric], look_of(chosen), found.criterion, chosen.active))


def stands_of(chosen: Chosen, found: Standing) -> list[Standing]:
    """Where the groups stand at each equal cost, the usual one first; at the end, or at their best, where that is what
    the views judge by, or all that there is."""
    equal = [each for each in offered(chosen) if each in budget.EQUAL]
    rest = [] if equal and found.criterion in equal else [found]
    return [*(found if each == found.criterion else standing(judged(chosen).groups, chosen.metric, each)
              for each in equal), *rest]


def _say(said: str, aside: str = "") -> None:
    below = f"<small>{html.escape(aside)}</small>" if aside else ""
    st.html(f'{wording.CSS}<div class="rl-headline" role="status">{html.escape(said)}{below}</div>', width="stretch")


def asides(stand: Standing, chosen: Chosen, names: Mapping[str, str]) -> str:
    """What a reader must know beside the verdict."""
    sure = f"Best in {theme.percent(stand.shares[stand.leader])} of bootstrap resamples of the seeds." if (
        chosen.place.sweep and stand.shares and METRICS[chosen.metric].better and not chosen.active) else ""
    shared = budget.shared_time(chosen.stored) if "seconds" in offered(chosen) else ""
    banded = any(each.low is not None for each in stand.means.values())
    interval = " [95 % interval]" if banded else ""
    what = f"{METRICS[chosen.metric].axis}: mean over seeds{interval}."
    return " ".join(filter(None, (what, sure, wording.updates(stand, names), why_not_at_the_end(chosen, names),
                                  shared)))


def judged(chosen: Chosen) -> Chosen:
    """The runs that a verdict is of: while some are running, only those that have ended, once every group has one;
    before that only those that are at least half as far as the furthest of their group.

    Else a run that has just begun would have all others judged at its first step.
    """
    if not chosen.active:
        return chosen
    kept = _ended(chosen.groups)
    if not all(group.traces for group in kept):
        kept = [replace(group, traces=tuple(trace for trace in group.traces if 2 * _steps(trace) >= max(
            map(_steps, group.traces)))) for group in chosen.groups]
    return replace(chosen, groups=tuple(kept), traces=tuple(trace for group in kept for trace in group.traces))


def _ended(found: Sequence[Group]) -> list[Group]:
    return [replace(group, traces=tuple(trace for trace in group.traces if trace.state not in ACTIVE
                                        and trace.axes["step"].size)) for group in found]


def _steps(trace: Trace) -> float:
    """How far a run is."""
    steps = trace.axes["step"]
    return float(steps[-1]) if steps.size else 0.0


def offered(chosen: Chosen) -> list[str]:
    """What the groups can be judged by, the usual one first; "at its best" only of a sweep that has ended."""
    able = criteria(judged(chosen).groups, chosen.metric)
    return [each for each in able if each != BEST or chosen.place.sweep]


def stand_of(chosen: Chosen) -> Standing | None:
    """Where the groups stand by the criterion of the link, or by the usual one where it does not fit; None where
    nothing can be judged."""
    able = offered(chosen)
    by = chosen.place.by if chosen.place.by in able else ""
    return standing(judged(chosen).groups, chosen.metric, by) if able else None


def names_of(chosen: Chosen) -> dict[str, str]:
    """What the groups are called in a sentence, by label."""
    return {look["label"]: look["short"] for look in look_of(chosen)}


def sentence(stands: Sequence[Standing], chosen: Chosen, names: Mapping[str, str]) -> str:
    """The verdict, the settings that differ, and how many of the runs it knows only in part."""
    said = wording.headline(stands, METRICS[chosen.metric], names, chosen.active)
    said = " ".join(filter(None, (said, wording.differ([*apart(chosen.groups)]))))
    of, count = len(chosen.traces), len(judged(chosen).traces)
    if chosen.active:
        whose = "that have ended" if all(group.traces for group in _ended(chosen.groups)) else (
            "that are at least half as far as the furthest of their group")
        return f"{said} Based on the {count} of {of} runs {whose}." if count < of else said
    short = sum(trace.state not in ("finished", "imported") for trace in chosen.traces)
    return f"{said} {short} of {of} runs did not finish." if short else said


def why_not_at_the_end(chosen: Chosen, names: Mapping[str, str]) -> str:
    """The sentence where the groups' costs differ too much; none while runs go, whose costs still grow."""
    if chosen.active:
        return ""
    used = spent(chosen.groups, chosen.metric)
    return budget.why_not_at_the_end({names[label]: amounts for label, amounts in used.items()})


def at_the_same(chosen: Chosen, found: Standing | None) -> Chosen:
    """The runs cut where they are judged at equal tokens, say, so that other views show what the verdict is of."""
    chosen = judged(chosen)
    if found is None or found.place is None:
        return chosen
    return replace(chosen, groups=tuple(group.until(found.criterion, found.place) for group in chosen.groups))
