"""A comparison in words and numbers: verdicts, cells, the table and the settings that differ, as HTML. Pure."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from app import naming
from app.lab import titled
from app.status import duration
from app.theme import number
from labcore.analysis.compare import statistics
from labcore.analysis.compare.best import BEST, Standing
from labcore.analysis.compare.budget import CLOSE, FINAL
from labcore.analysis.compare.statistics import LAST, Comparison, Mean
from labcore.analysis.compare.table import Row, Table
from labcore.analysis.estimate import FEWEST
from labcore.catalog.metric import Metric
from labcore.catalog.metrics import METRICS
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.traces import AXES

CSS = """
<style>
.rl-table.rl-results td,.rl-table.rl-results th:not(:first-child){text-align:right;white-space:nowrap;
  padding:6px 14px 6px 0}
.rl-table.rl-results th:first-child{min-width:8rem;padding:6px 18px 6px 18px;text-indent:-18px}
.rl-table.rl-results :is(td,th):last-child{white-space:normal;min-width:6.5rem;padding-right:0}
.rl-table.rl-results tbody th{opacity:1;font-weight:600}
.rl-results small{display:block;font-size:12px;opacity:.78;font-weight:400}
.rl-table .rl-dot{width:10px;height:10px;border-radius:50%;display:inline-block;margin-right:.5rem}
.rl-under{text-indent:0}
.rl-results thead th:not(:first-child){white-space:normal;vertical-align:bottom}
.rl-frozen tr>:first-child{position:sticky;left:0;z-index:1;background:light-dark(#FFFFFF,#14171B);opacity:1}
.rl-headline{font-size:1.18rem;line-height:1.4;font-weight:600;text-wrap:pretty}
.rl-headline small{display:block;font-size:14px;font-weight:400;opacity:.75;margin-top:2px}
.rl-cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(215px,1fr));gap:10px;margin:2px 0 4px}
.rl-card{border:1px solid color-mix(in srgb,currentColor 16%,transparent);border-radius:8px;padding:8px 12px 7px;
  font-size:14px;line-height:1.5;font-variant-numeric:tabular-nums;min-width:0}
.rl-card.rl-shown{border-color:color-mix(in srgb,currentColor 55%,transparent)}
.rl-card div{display:flex;align-items:center}.rl-card div b{margin-left:auto;padding-left:10px;white-space:nowrap}
.rl-card div span:nth-child(2){overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.rl-card .rl-dot{width:10px;height:10px;border-radius:50%;flex:none;margin-right:.5rem}
.rl-card small{display:block;font-size:12.5px;opacity:.78}
@media (max-width:640px){.st-key-compare_controls .stElementContainer:has(.stSelectbox){
  width:calc(50% - .55rem)!important;flex:1 1 calc(50% - .55rem)!important;min-width:0}}
.rl-notes{font-size:14px;margin:.2rem 0 0;padding-left:1.1rem}
.rl-notes li{margin:2px 0}
</style>"""
NONE = "–"
NAMED = 4  # groups that a sentence names
WAYS = {FINAL: "at the end", BEST: "at its best"}
PER = {"tokens": "per token", "env_steps": "per environment step", "updates": "per update", "seconds": "per second",
       **WAYS}
Look = Mapping[str, Any]  # of a group: its label, its note, its colour on a light and a dark ground


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
        parts.append(f"{listed(costs)} {who}{'' if does == before else f' {does}'}")
        before = does
    sentence = f"{'So far, ' if going else ''}{'; '.join(parts)}."
    return f"{capital(sentence)}{_limits(found[0], metric, going)}"


def _clause(stand: Standing, metric: Metric, names: Mapping[str, str], going: bool) -> tuple[str, str]:
    """(who, what of them) by one criterion."""
    shown = {label: number(each.mean, metric.digits) for label, each in stand.means.items()}
    alike = [label for label, text in shown.items() if text == shown[stand.leader]]
    leader, several = names[stand.leader], _some([names[label] for label in alike])
    if len(alike) > 1 and not (stand.beats and not going):
        return several, "are equal" if len(alike) == len(shown) else "are highest" if metric.better != "lower" else \
            "are lowest"
    if not metric.better or _unranked(stand, going):
        return leader, "is lowest" if metric.better == "lower" else "is highest"
    if going:
        return leader, "leads"
    if not stand.ties and not stand.few:
        return leader, "is ahead"
    if len(shown) == 2 and stand.ties:
        return f"{leader} and {names[stand.ties[0]]}", "tie"
    words = {"is ahead of": stand.beats, "ties with": stand.ties, "cannot be ranked against": stand.few}
    return leader, listed([f"{does} {_few([names[label] for label in labels])}" for does, labels in words.items()
                           if labels])


def _few(names: Sequence[str]) -> str:
    """One or two names, or how many there are: a headline has no room for more."""
    return listed(names) if len(names) <= 2 else f"{len(names)} others"


def _unranked(stand: Standing, going: bool) -> bool:
    """Whether seeds are too few to say who is ahead."""
    return stand.means[stand.leader].count < FEWEST or len(stand.few) == len(stand.means) - 1


def _limits(stand: Standing, metric: Metric, going: bool) -> str:
    """What a reader must know of the sentence: no better direction, few seeds, runs that have not finished."""
    said = []
    if not metric.better:
        said.append(f"No direction of {metric.inline} is better.")
    elif _unranked(stand, going):
        said.append(_too_few([each.count for each in stand.means.values()]))
    if going:
        said.append("Some runs have not finished, so the comparison is not final.")
    return "".join(f" {each}" for each in said)


def _too_few(counts: Sequence[int]) -> str:
    """How many seeds there are where they are too few for a verdict.

    >>> _too_few([1, 1]), _too_few([1, 3])
    ('One seed per setting is not enough to rank them.', 'Fewer than 3 seeds are not enough to rank them.')
    """
    if len(set(counts)) > 1:
        return f"Fewer than {FEWEST} seeds are not enough to rank them."
    return (f"{'One seed' if counts[0] == 1 else f'{counts[0]} seeds'} per setting "
            f"{'is' if counts[0] == 1 else 'are'} not enough to rank them.")


def cards(found: Sequence[Standing], metric: Metric, looks: Sequence[Look], shown: str, going: bool) -> str:
    """A card for each equal cost, as HTML: the two best groups with their values there, and what sets them apart.

    That of the criterion `shown`, by which the views below judge, is marked.
    """
    by_label = {look["label"]: look for look in looks}
    return "".join(['<div class="rl-cards">', *(_card(each, metric, by_label, each.criterion == shown, going)
                                                for each in found), "</div>"])


def _card(stand: Standing, metric: Metric, looks: Mapping[str, Look], shown: bool, going: bool) -> str:
    sign = 1 if metric.better == "lower" else -1
    order = sorted(stand.means, key=lambda label: (label != stand.leader, sign * stand.means[label].mean))
    rows = "".join(f"<div>{dot(looks[label])}<span>{html.escape(looks[label]['short'])}</span>"
                   f"<b>{mean(stand.means[label], metric.digits)}</b></div>" for label in order[:2])
    at = f" at {place(stand.place)} {AXES[stand.criterion]} each" if stand.place is not None else ""
    more = f", {len(order) - 2} more below" if len(order) > 2 else ""
    title = f"<small><b>{capital(PER[stand.criterion])}</b>{at}</small>"
    return (f'<div class="rl-card{" rl-shown" if shown else ""}">{title}{rows}'
            f"<small>{html.escape(_evidence(stand, order[1], metric, going) + more)}</small></div>")


def _evidence(stand: Standing, second: str, metric: Metric, going: bool) -> str:
    """How the leader stands against the next one, in a few words."""
    if not metric.better:
        return "no direction is better"
    if second in stand.few:
        return f"{seeds(min(stand.means[label].count for label in (stand.leader, second)))}: not ranked"
    compared = statistics.comparison(np.array(stand.values[stand.leader]), np.array(stand.values[second]),
                                     metric.better)
    return f"{'so far ' * going}{'ahead' if second in stand.beats else 'tie'}, {compared.p_value_text}"


def differ(keys: Sequence[str]) -> str:
    """Which settings differ, in a sentence.

    >>> differ(["beta", "group_size"]), differ([])
    ('Settings differ in β and G.', '')
    """
    known = map(naming.name, keys)
    names = [name if len(name) < 3 or name[:2].isupper() else name[0].lower() + name[1:] for name in known]
    shown = names if len(names) <= NAMED else [*names[:NAMED - 1], f"{len(names) - NAMED + 1} more"]
    return f"Settings differ in {listed(shown)}." if keys else ""


def way(stand: Standing) -> str:
    """The point at which groups are compared: "at the end", "at equal tokens (12,000 each)"."""
    if stand.place is None:
        return WAYS[stand.criterion]
    return f"{judged(stand.criterion)} ({place(stand.place)} each)"


def judged(criterion: str) -> str:
    """A criterion in words, for a choice among several."""
    return WAYS.get(criterion) or f"at equal {AXES[criterion]}"


def switch(criterion: str) -> str:
    """A criterion on the switch.

    >>> switch("tokens"), switch("final")
    ('Equal tokens', 'At the end')
    """
    return capital(judged(criterion).removeprefix("at ") if criterion in AXES else judged(criterion))


def place(value: float) -> str:
    """A number of tokens, say, or of seconds.

    >>> place(12288.0), place(3.14159)
    ('12,288', '3.14')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def updates(stand: Standing, names: Mapping[str, str]) -> str:
    """How many updates the groups had made by then, where that differs: the axis that was not made equal."""
    if stand.criterion == "updates" or not stand.updates or set(stand.updates) != set(stand.means):
        return ""
    most, least = max(stand.updates.values()), min(stand.updates.values())
    if most <= CLOSE * least:
        return ""
    made = ", ".join(f"{names[label]} {count:,.0f}" for label, count in stand.updates.items())
    return f"Updates by then: {made if len(stand.updates) <= NAMED else f'{least:,.0f} to {most:,.0f}'}."


def capital(words: str) -> str:
    return words[0].upper() + words[1:]


def _some(names: Sequence[str]) -> str:
    return listed(names) if len(names) <= NAMED else f"{', '.join(names[:NAMED])} and {len(names) - NAMED} others"


def listed(labels: Sequence[str]) -> str:
    """
    >>> listed(["A"]), listed(["A", "B", "C"])
    ('A', 'A, B and C')
    """
    return ", ".join(labels[:-1]) + f" and {labels[-1]}" if len(labels) > 1 else labels[0]


def seeds(count: int) -> str:
    return f"{count} seed{'s' if count != 1 else ''}"


def mean(value: Mean | None, digits: int, sign: bool = False) -> str:
    """A mean with its 95 % interval.

    >>> mean(Mean(0.5, 0.25, 0.75, 3), 2), mean(Mean(0.5, None, None, 1), 2, sign=True)
    ('0.50 [0.25, 0.75]', '+0.50')
    """
    if value is None:
        return NONE
    shown = [number(each, digits) if not sign or each <= 0 else f"+{number(each, digits)}"
             for each in (value.mean, value.low, value.high) if each is not None]
    return shown[0] if len(shown) == 1 else f"{shown[0]} [{shown[1]}, {shown[2]}]"


def verdict(comparison: Comparison, a: str, b: str, fewest: int, mine: bool) -> tuple[str, str]:
    """(what it comes to, the evidence) of A against B, `fewest` seeds on the smaller side.

    It is said of A where that is `mine`, else of B.
    """
    other = b if mine else a
    if comparison.verdict == "none":
        said = f"no comparison from {seeds(fewest)}"
    elif comparison.verdict == "tie":
        said = f"tie with {other}"
    else:
        said = f"beats {other}" if (comparison.verdict == "A") == mine else f"{other} beats it"
    band = "" if comparison.low is None else f", 95 % interval {comparison.low:.2f} to {comparison.high:.2f}"
    shown = said if comparison.verdict == "none" else f"{said}, P {comparison.p:.2f}"
    return (shown, f"P({a} > {b}) = {comparison.p:.2f}{band}. Welch's t-test: "
            f"{comparison.p_value_text}.")


def measured(better: str) -> str:
    """What the numbers of a run are, for a caption; `better` is empty for a metric that has no best.

    >>> measured("")
    'Value per run: mean of its last 5 steps up to that point, or its last row.'
    """
    point = "lowest" if better == "lower" else "highest"
    best = f" Best: the {point} mean over {LAST} steps."
    return (f"Value per run: mean of its last {LAST} steps up to that point, or its last row.{best if better else ''}")


def rows_in_order(table: Table, measure: str = "") -> list[Row]:
    """Best mean by a measure first (by the table's first verdict without one); as they came where neither more nor
    less is better."""
    measure = measure or next(iter(table.verdicts), FINAL)
    if not table.better:
        return list(table.rows)
    return sorted(table.rows, key=lambda row: statistics.mean(np.array(row.values[measure])).mean
                  * (1 if table.better == "lower" else -1))


def results(table: Table, looks: Mapping[str, Look], measure: str = "", going: bool = False) -> str:
    """The table as HTML, in the order of a measure; `looks` by the rows' labels. `going`: more runs are to come."""
    measures = [*table.equal, FINAL]
    costs = [head for head, there in (("Mean time per run", any(row.seconds for row in table.rows)),
                                      ("Memory", any(row.memory for row in table.rows)),
                                      ("Models held", any(row.models for row in table.rows))) if there]
    heads = ["Group", "Seeds", *(f"At {place(at)} {AXES[axis]}" for axis, at in table.equal.items()),
             "So far" if going else "At the end", *(["Best"] if table.better else []), *costs]
    body = "".join(_row(table, row, looks[row.label], measures, costs, going) for row in rows_in_order(table, measure))
    return (f'<div class="rl-scroll"><table class="rl-table rl-results rl-frozen"><thead><tr>'
            f"{''.join(f'<th>{head}</th>' for head in heads)}</tr></thead><tbody>{body}</tbody></table></div>")


def _row(table: Table, row: Row, look: Look, measures: Sequence[str], costs: Sequence[str], going: bool) -> str:
    digits = METRICS[table.metric].digits
    cells = {measure: _cell(table, row, measure, digits, going) for measure in measures}
    if table.better:
        best = "" if "best" not in row.deltas else f"<small>Δ {mean(row.deltas['best'], digits, sign=True)}</small>"
        cells["best"] = f"{mean(row.best, digits)}{best}"
    ordered = [*(cells[axis] for axis in table.equal), cells[FINAL], *([cells["best"]] if table.better else [])]
    short = sum(state not in ("finished", "imported") for state in row.states)
    said = "not evidence" if row.seeds == 1 else f"{short} not finished" if short else ""
    cost = {"Mean time per run": _time(row),
            "Memory": NONE if row.memory is None else f"{row.memory.mean:,.0f} MB",
            "Models held": " + ".join(row.models) or NONE}
    pinned = '<small class="rl-under">the baseline</small>' if row.label == table.baseline else ""
    tail = [f"{row.seeds}<small>{said}</small>", *ordered, *(cost[head] for head in costs)]
    return (f"<tr><th>{dot(look)}{html.escape(row.label)}{pinned}</th>"
            f"{''.join(f'<td>{cell}</td>' for cell in tail)}</tr>")


def _time(row: Row) -> str:
    """The mean of a group's runs, and below it their range."""
    if row.seconds is None:
        return NONE
    low, high = (duration(end(row.durations)) for end in (min, max))
    return duration(row.seconds.mean) + (f"<small>{low} to {high}</small>" if low != high else "")


def _cell(table: Table, row: Row, measure: str, digits: int, going: bool) -> str:
    """A mean, and below it how it stands against the baseline, else against the leader; alone where none is judged."""
    value = row.final if measure == FINAL else row.equal[measure]
    leader, beaten = table.leaders[measure]
    if len(table.rows) < 2 or measure not in table.verdicts or (measure == FINAL and going):
        return mean(value, digits)
    # Bold marks a winner, which takes enough seeds on both sides.
    won = row.label == leader and any(each.verdict != "none" for each in table.comparisons[measure][leader].values())
    shown = f"<b>{mean(value, digits)}</b>" if won else mean(value, digits)
    if row.label == table.baseline:
        return shown
    if table.baseline:
        other = next(each for each in table.rows if each.label == table.baseline)
        said, why = verdict(row.comparisons[measure], row.label, table.baseline, min(row.seeds, other.seeds), True)
        said = f"Δ {mean(row.deltas[measure], digits, sign=True)}<br>{html.escape(said)}"
    elif row.label == leader:
        verdicts = {comparison.verdict for comparison in table.comparisons[measure][leader].values()}
        said = ("beats all others" if len(beaten) == len(table.rows) - 1 else
                f"beats {len(beaten)} of {len(table.rows) - 1}" if beaten else
                "leads, but it is a tie" if "tie" in verdicts else
                f"no comparison from {seeds(row.seeds)}" if row.seeds < FEWEST else
                "no comparison, because the others have too few seeds")
        why = "The best mean of all groups."
    else:
        first = next(each for each in table.rows if each.label == leader)
        comparison = table.comparisons[measure][leader][row.label]
        said, why = verdict(comparison, leader, row.label, min(row.seeds, first.seeds), False)
        said = html.escape(said)
    return f'{shown}<small title="{html.escape(why)}">{said}</small>'


def settings(table: Table, looks: Mapping[str, Look], specs: Sequence[RunSpec] = ()) -> str:
    """The settings of the runs of `specs` that differ, one line each, as HTML; empty where none do.

    Groups of one algorithm stand beside each other. What is not written as files have it has its key to hover.
    """
    if not table.config:
        return ""
    algorithms = table.config.get("algorithm", ("",) * len(table.rows))
    order = sorted(range(len(table.rows)), key=lambda place: algorithms.index(algorithms[place]))
    labels = [table.rows[place].label for place in order]
    algorithm_labels = {spec.algorithm: spec.row.label for spec in specs}
    heads = "".join(f"<th>{dot(looks[label])}{html.escape(label)}</th>" for label in labels)
    body = "".join(f"<tr><th>{html.escape(naming.title(key, specs))}</th>"
                   f"{''.join(_setting(key, values[place], cells[place], algorithm_labels) for place in order)}</tr>"
                   for key, values in table.config.items() for cells in [value_words(key, values)])
    return (f'<div class="rl-scroll"><table class="rl-table rl-frozen"><thead><tr><th>Setting</th>{heads}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")


def _setting(key: str, value: Any, words: str, algorithm_labels: Mapping[str, str]) -> str:
    """A cell: a choice in its words with its key to hover, an algorithm or a run by its title with its own."""
    if key == "algorithm":
        words = algorithm_labels.get(str(value), words)
    if key == "parent":
        words = titled(words)
    hidden = key in naming.FAMILIES or key in ("algorithm", "parent")
    hover = f' title="{html.escape(str(value))}"' if hidden and value is not None else ""
    return f"<td{hover}>{html.escape(words)}</td>"


def dot(look: Look) -> str:
    """A group's colour, as on the charts."""
    light, dark = look["colour"]
    return f'<span class="rl-dot" style="background:light-dark({light},{dark})"></span>'


def value_words(key: str, values: Sequence[Any]) -> list[str]:
    """A setting's values in cells; a dash where a run has no such setting. What differs never reads the same.

    >>> value_words("beta", [None, 7e-4]), value_words("anneal", [True, False])
    (['–', '0.0007'], ['on', 'off'])
    >>> value_words("data", ["uploads/3fa81c/pairs.jsonl", "uploads/09be77/pairs.jsonl", "uploads/3fa81c/own.jsonl"])
    ['3fa81c/pairs.jsonl', '09be77/pairs.jsonl', 'own.jsonl']
    """
    texts = [NONE if value is None else naming.written(key, value) for value in values]
    alike = {text for text in texts if len({str(value) for value, other in zip(values, texts, strict=True)
                                            if other == text}) > 1}
    texts = ["/".join(Path(str(value)).parts[-2:]) if text in alike else text
             for value, text in zip(values, texts, strict=True)]
    return [text if len(text) <= 60 else f"{text[:59]}…" for text in texts]


def not_finished(words: str) -> str:
    """What is hovered of a group whose runs did not all finish, as HTML; nothing where all did."""
    return f"<br>not finished:<br>{words}" if words else ""
