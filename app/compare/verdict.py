"""The verdict above every view that compares results: who is ahead at each equal cost, in a sentence and as cards."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import streamlit as st

from app import naming
from app.compare import wording
from app.compare.data import Chosen, basis, judged, look_of
from app.compare.place import change
from app.lab import lab
from app.theme import metric_text
from app.widget_state import widget_state
from labcore.analysis.compare import budget, statistics
from labcore.analysis.compare.best import BEST, Standing, criteria, spent, standing
from labcore.analysis.compare.groups import apart
from labcore.analysis.estimate import FEWEST
from labcore.catalog.amounts import percent
from labcore.catalog.metric import Metric
from labcore.runs import places
from labcore.runs.traces import AXES

CSS = """<style>
.rl-headline{font-size:1.18rem;line-height:1.4;font-weight:600;text-wrap:pretty}
.rl-headline small{display:block;font-size:14px;font-weight:400;opacity:.75;margin-top:2px}
.rl-headline details{font-size:14px;font-weight:400;margin-top:2px}.rl-headline details[open]{opacity:.8}
.rl-headline summary{cursor:pointer;opacity:.75;width:fit-content}
.rl-cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(215px,1fr));gap:10px;margin:2px 0 4px}
.rl-card{border:1px solid color-mix(in srgb,currentColor 16%,transparent);border-radius:8px;padding:8px 12px 7px;
  font-size:14px;line-height:1.5;font-variant-numeric:tabular-nums;min-width:0}
.rl-card.rl-shown{border-color:color-mix(in srgb,currentColor 55%,transparent)}
.rl-card div{display:flex;align-items:center}.rl-card div b{margin-left:auto;padding-left:10px;white-space:nowrap}
.rl-card div span:nth-child(2){overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.rl-card .rl-dot{width:10px;height:10px;border-radius:50%;flex:none;margin-right:.5rem}
.rl-card small{display:block;font-size:12.5px;opacity:.78}
</style>"""
NAMED = 4  # settings that a sentence names
PER = {"tokens": "per token", "env_steps": "per environment step", "updates": "per update", "seconds": "per second",
       **wording.WAYS}
Look = Mapping[str, Any]  # of a group, see `look_of`


def line(chosen: Chosen, found: Standing | None) -> None:
    """Show who is ahead at each equal cost, and let the reader choose the cost at which the views compare. If there is
    no verdict at the end of the runs, say why."""
    able, names = offered(chosen), names_of(chosen)
    if found is None:
        _say("Nothing to compare before the first steps." if chosen.active else
             why_not_at_the_end(chosen, names) or "None of these runs made a step.", waiting(chosen))
        return
    if len(found.means) < 2:
        if why := waiting(chosen):
            _say("", why)
        return
    if chosen.place.by not in ("", budget.FINAL, *able) and not chosen.active:
        st.warning(f"These runs cannot be compared {wording.judged(chosen.place.by)}, so they are compared "
                   f"{wording.judged(found.criterion)}.", icon=":material/error:")
    stands = stands_of(chosen, found)
    left, right = st.columns([2.6 if len(able) < 4 else 1.3, 1], gap="medium") if len(able) > 1 else (
        st.container(), None)
    with left:
        _say(headline(stands, chosen.metric_of(), names, chosen.active), waiting(chosen),
             caveats(stands, found, chosen, names), more=how(found, chosen, names))
    if right:
        shown = widget_state("compare:by", found.criterion, tuple(able))
        right.segmented_control("Compared at", able, default=shown.value, key=shown.key, required=True,
                                label_visibility="collapsed", format_func=wording.switch,
                                on_change=lambda: change(by="" if shown.taken() == able[0] else shown.value))
    st.html(cards(stands, chosen.metric_of(), look_of(chosen), found.criterion, chosen.active))


def stands_of(chosen: Chosen, found: Standing) -> list[Standing]:
    """The standing of the groups at each equal cost, the default first; at the end or at their best only if the views
    compare there, or if there is no equal cost."""
    equal = [each for each in offered(chosen) if each in budget.EQUAL]
    rest = [] if equal and found.criterion in equal else [found]
    return [*(found if each == found.criterion else standing(judged(chosen).groups, chosen.metric, each)
              for each in equal), *rest]


def _say(said: str, *asides: str, more: str = "") -> None:
    below = "".join(f"<small>{html.escape(aside)}</small>" for aside in asides if aside)
    below += f"<details><summary>How these numbers are computed</summary>{html.escape(more)}</details>" if more else ""
    st.html(f'{CSS}<div class="rl-headline" role="status">{html.escape(said)}{below}</div>', width="stretch")


def waiting(chosen: Chosen) -> str:
    """The reasons why runs are queued, each once; empty if no run has a reason."""
    going = places.going(lab().store, chosen.stored)
    said = dict.fromkeys(places.waiting_sentence(naming.message(run), places.holders(run, going)).rstrip(".")
                         for run in chosen.stored if run.state == "queued" and run.message)
    return " ".join(f"{wording.capital(each)}." for each in said)


def caveats(stands: Sequence[Standing], found: Standing, chosen: Chosen, names: Mapping[str, str]) -> str:
    """Return the caveats below the verdict: numbers of updates, too few seeds, and settings that differ. `found` is the
    standing of the groups in the views."""
    few = limits(stands[0], chosen.metric_of(), chosen.active)
    return " ".join(filter(None, (wording.updates(found, names), few, _unfinished(chosen),
                                  differ([*apart(chosen.groups)]))))


def how(found: Standing, chosen: Chosen, names: Mapping[str, str]) -> str:
    """Explain how the numbers of the verdict are computed. `found` is the standing of the groups in the views."""
    metric = chosen.metric_of()
    sure = f"Best in {percent(found.shares[found.leader])} of bootstrap resamples of the seeds." if (
        chosen.place.sweep and found.shares and metric.better and not chosen.active) else ""
    shared = budget.shared_time(chosen.stored) if "seconds" in offered(chosen) else ""
    banded = any(each.low is not None for each in found.means.values())
    what = f"{metric.page_axis}: mean over seeds{' [95 % interval]' if banded else ''}."
    return " ".join(filter(None, (what, sure, why_not_at_the_end(chosen, names), shared)))


def _unfinished(chosen: Chosen) -> str:
    """The sentence about runs that are not over, or did not finish; empty where all did."""
    if chosen.active:
        return f"Not final, {basis(chosen) or 'because some runs have not finished'}."
    short = sum(trace.state not in ("finished", "imported") for trace in chosen.traces)
    return f"{short} of {len(chosen.traces)} runs did not finish." if short else ""


def offered(chosen: Chosen) -> list[str]:
    """The criteria by which the groups can be compared, the default first. "At its best" is offered only for a
    sweep."""
    able = criteria(judged(chosen).groups, chosen.metric)
    return [each for each in able if each != BEST or chosen.place.sweep]


def stand_of(chosen: Chosen) -> Standing | None:
    """The standing of the groups by the criterion in the link, or by the default one if that does not fit; None if no
    criterion fits."""
    able = offered(chosen)
    by = chosen.place.by if chosen.place.by in able else ""
    return standing(judged(chosen).groups, chosen.metric, by) if able else None


def names_of(chosen: Chosen) -> dict[str, str]:
    """The names of the groups in a sentence, by label."""
    return {look["label"]: look["short"] for look in look_of(chosen)}


def why_not_at_the_end(chosen: Chosen, names: Mapping[str, str]) -> str:
    """The sentence that says that the groups' costs differ too much; empty while runs are running, because their costs
    still grow."""
    if chosen.active:
        return ""
    used = spent(chosen.groups, chosen.metric)
    return budget.why_not_at_the_end({names[label]: amounts for label, amounts in used.items()})


def at_the_same(chosen: Chosen, found: Standing | None) -> Chosen:
    """The runs, cut at the place of the verdict (equal tokens, for example), so that other views show the same data as
    the verdict."""
    chosen = judged(chosen)
    if found is None or found.place is None:
        return chosen
    return replace(chosen, groups=tuple(group.until(found.criterion, found.place) for group in chosen.groups))


# ---------------------------------------------------------------- words


def headline(found: Sequence[Standing], metric: Metric, names: Mapping[str, str], going: bool = False) -> str:
    """Who is ahead at each equal cost, in a sentence: "Per token PPO is ahead; per update and per second GRPO."

    Groups are called by `names`. A lead that seeds alone explain is a tie, means that read the same are equal, and
    fewer than three seeds have no winner, whether or not runs are `going`.
    """
    said: dict[tuple[str, str], list[str]] = {}
    for stand in found:
        said.setdefault(_clause(stand, metric, names, going), []).append(PER[stand.criterion])
    parts, before = [], ""
    for (who, does), costs in said.items():
        parts.append(f"{wording.listed(costs)} {who}{'' if does == before else f' {does}'}")
        before = does
    return wording.capital(f"{'So far, ' if going else ''}{'; '.join(parts)}.")


def _clause(stand: Standing, metric: Metric, names: Mapping[str, str], going: bool) -> tuple[str, str]:
    """(subject, predicate) of the sentence about one criterion."""
    shown = {label: metric_text(metric, each.mean, exact=True) for label, each in stand.means.items()}
    alike = [label for label, text in shown.items() if text == shown[stand.leader]]
    leader, several = names[stand.leader], _some([names[label] for label in alike])
    best = f"the {'lowest' if metric.better == 'lower' else 'highest'} {metric.inline}"
    if len(alike) > 1 and not (stand.beats and not going):
        return several, "are equal" if len(alike) == len(shown) else f"have {best}"
    if not metric.better or _unranked(stand, going):
        return leader, f"has {best}"
    if going:
        return leader, "leads"
    if not stand.ties and not stand.few:
        return leader, "is ahead"
    if len(shown) == 2 and stand.ties:
        return f"{leader} and {names[stand.ties[0]]}", "tie"
    words = {"is ahead of": stand.beats, "ties with": stand.ties, "cannot be ranked against": stand.few}
    said = [f"{does} {_few([names[label] for label in labels])}" for does, labels in words.items() if labels]
    return leader, wording.listed(said)


def _few(names: Sequence[str]) -> str:
    """One or two names, or the number of names: a headline has no room for more."""
    return wording.listed(names) if len(names) <= 2 else f"{len(names)} others"


def _unranked(stand: Standing, going: bool) -> bool:
    """True if there are too few seeds to say who is ahead."""
    return stand.means[stand.leader].count < FEWEST or len(stand.few) == len(stand.means) - 1


def limits(stand: Standing, metric: Metric, going: bool = False) -> str:
    """The sentence about a metric without a better direction, or about seeds that are too few for a verdict."""
    if not metric.better:
        return f"No direction of {metric.inline} is better."
    return _too_few([each.count for each in stand.means.values()]) if _unranked(stand, going) else ""


def _too_few(counts: Sequence[int]) -> str:
    """The sentence for seeds that are too few for a verdict.

    >>> _too_few([1, 1]), _too_few([1, 3])
    ('One seed per setting is not enough to rank them.', 'Fewer than 3 seeds are not enough to rank them.')
    """
    if len(set(counts)) > 1:
        return f"Fewer than {FEWEST} seeds are not enough to rank them."
    return (f"{'One seed' if counts[0] == 1 else f'{counts[0]} seeds'} per setting "
            f"{'is' if counts[0] == 1 else 'are'} not enough to rank them.")


def cards(found: Sequence[Standing], metric: Metric, looks: Sequence[Look], shown: str, going: bool) -> str:
    """A card for each equal cost, as HTML: the two best groups with their values there, and their differences.

    The card of the criterion `shown`, by which the views below compare, is marked.
    """
    by_label = {look["label"]: look for look in looks}
    return "".join(['<div class="rl-cards">', *(_card(each, metric, by_label, each.criterion == shown, going)
                                                for each in found), "</div>"])


def _card(stand: Standing, metric: Metric, looks: Mapping[str, Look], shown: bool, going: bool) -> str:
    sign = 1 if metric.better == "lower" else -1
    order = sorted(stand.means, key=lambda label: (label != stand.leader, sign * stand.means[label].mean))
    rows = "".join(f"<div>{wording.dot(looks[label])}<span>{html.escape(looks[label]['short'])}</span>"
                   f"<b>{wording.mean(stand.means[label], metric)}</b></div>" for label in order[:2])
    at = f" at {wording.place(stand.place)} {AXES[stand.criterion]} each" if stand.place is not None else ""
    more = f", {len(order) - 2} more below" if len(order) > 2 else ""
    title = f"<small><b>{wording.capital(PER[stand.criterion])}</b>{at}</small>"
    return (f'<div class="rl-card{" rl-shown" if shown else ""}">{title}{rows}'
            f"<small>{html.escape(_evidence(stand, order[1], metric, going) + more)}</small></div>")


def _evidence(stand: Standing, second: str, metric: Metric, going: bool) -> str:
    """The comparison of the leader with the next group, in a few words."""
    if not metric.better:
        return "no direction is better"
    if second in stand.few:
        return f"{wording.seeds(min(stand.means[label].count for label in (stand.leader, second)))}: not ranked"
    compared = statistics.comparison(np.array(stand.values[stand.leader]), np.array(stand.values[second]),
                                     metric.better)
    return f"{'so far ' * going}{'ahead' if second in stand.beats else 'tie'}, {compared.p_value_text}"


def differ(keys: Sequence[str]) -> str:
    """The sentence about the settings that differ.

    >>> differ(["beta", "group_size"]), differ([])
    ('Settings differ in β and G.', '')
    """
    known = map(naming.name, keys)
    names = [name if len(name) < 3 or name[:2].isupper() else name[0].lower() + name[1:] for name in known]
    shown = names if len(names) <= NAMED else [*names[:NAMED - 1], f"{len(names) - NAMED + 1} more"]
    return f"Settings differ in {wording.listed(shown)}." if keys else ""


def _some(names: Sequence[str]) -> str:
    more = [f"{len(names) - NAMED} others"] if len(names) > NAMED else []
    return wording.listed([*names[:NAMED], *more])
