"""A comparison in words and numbers: verdicts, cells, the table and the settings that differ, as HTML. Pure."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from app import naming
from app.lab import titled
from app.marked import FAMILIES
from app.status import duration, volume
from app.theme import difference_text, metric_text
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
.rl-some{margin-top:.6rem;font-size:14px}.rl-some summary{cursor:pointer;opacity:.8;margin-bottom:.4rem}
.rl-notes{font-size:14px;margin:.2rem 0 0;padding-left:1.1rem}
.rl-notes li{margin:2px 0}
</style>"""
NONE = "–"
NAMED = 4  # groups that a sentence names
WAYS = {FINAL: "at the end", BEST: "at its best"}
Look = Mapping[str, Any]  # of a group: its label, its note, its colour on a light and a dark ground


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
    """The numbers of updates that the groups made at equal cost, if they differ: a likely cause of a lead.

    "PPO made 198 updates in these tokens, GRPO 48." Of many groups only the range.
    """
    if stand.criterion == "updates" or not stand.updates or set(stand.updates) != set(stand.means):
        return ""
    most, least = max(stand.updates.values()), min(stand.updates.values())
    if most <= CLOSE * least:
        return ""
    within = f" in these {AXES[stand.criterion]}" if stand.criterion in AXES else ""
    if len(stand.updates) > NAMED:
        return f"The groups made {least:,.0f} to {most:,.0f} updates{within}."
    (first, count), *others = sorted(stand.updates.items(), key=lambda each: -each[1])
    rest = "".join(f", {names[label]} {made:,.0f}" for label, made in others)
    return f"{names[first]} made {count:,.0f} updates{within}{rest}."


def capital(words: str) -> str:
    return words[0].upper() + words[1:]


def listed(labels: Sequence[str]) -> str:
    """
    >>> listed(["A"]), listed(["A", "B", "C"])
    ('A', 'A, B and C')
    """
    return ", ".join(labels[:-1]) + f" and {labels[-1]}" if len(labels) > 1 else labels[0]


def seeds(count: int) -> str:
    return f"{count} seed{'s' if count != 1 else ''}"


def mean(value: Mean | None, metric: Metric, sign: bool = False) -> str:
    """A mean of a metric with its 95 % interval.

    >>> share, kl = Metric("p", "P", "share", "", scale="rate"), Metric("kl", "KL", "nats", "", digits=2)
    >>> mean(Mean(0.5, 0.25, 0.75, 3), kl), mean(Mean(0.5, None, None, 1), kl, sign=True)
    ('0.50 [0.25, 0.75]', '+0.50')
    >>> mean(Mean(0.5, 0.25, 0.75, 3), share)
    '50.0 % [25.0 %, 75.0 %]'
    """
    if value is None:
        return NONE
    shown = [difference_text(metric, each) if sign else metric_text(metric, each, exact=True)
             for each in (value.mean, value.low, value.high) if each is not None]
    return shown[0] if len(shown) == 1 else f"{shown[0]} [{shown[1]}, {shown[2]}]"


def verdict(comparison: Comparison, a: str, b: str, fewest: int, mine: bool) -> tuple[str, str]:
    """(verdict, evidence) of A against B, with `fewest` seeds on the smaller side.

    The words are about A if A is `mine`, otherwise about B.
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
    return (shown, f"P({a} > {b}) = {comparison.p:.2f}{band}. Welch's t-test: {comparison.p_value_text}.")


def measured(better: str) -> str:
    """A caption that defines the value of a run; `better` is empty for a metric without a best value.

    >>> measured("")
    'Value per run: mean of its last 5 steps up to that point, or its last row.'
    """
    point = "lowest" if better == "lower" else "highest"
    best = f" Best: the {point} mean over {LAST} steps."
    return (f"Value per run: mean of its last {LAST} steps up to that point, or its last row.{best if better else ''}")


def rows_in_order(table: Table, measure: str = "") -> list[Row]:
    """The rows, best mean by `measure` first; without a `measure`, by the table's first verdict. If neither direction
    of the metric is better, the rows keep their order."""
    measure = measure or next(iter(table.verdicts), FINAL)
    if not table.better:
        return list(table.rows)
    return sorted(table.rows, key=lambda row: statistics.mean(np.array(row.values[measure])).mean
                  * (1 if table.better == "lower" else -1))


def results(table: Table, looks: Mapping[str, Look], measure: str = "", going: bool = False,
            metric: Metric | None = None) -> str:
    """The table as HTML, sorted by `measure`. `looks` has the row labels as keys. `going`: some runs have not finished.
    `metric`: the table's metric under the name that it has in these runs."""
    metric = metric or METRICS[table.metric]
    measures = [*table.equal, FINAL]
    costs = [head for head, there in (("Mean time per run", any(row.seconds for row in table.rows)),
                                      ("Memory", any(row.memory for row in table.rows)),
                                      ("Models held", any(row.models for row in table.rows))) if there]
    heads = ["Group", "Seeds", *(f"At {place(at)} {AXES[axis]}" for axis, at in table.equal.items()),
             "So far" if going else "At the end", *(["Best"] if table.better else []), *costs]
    body = "".join(_row(table, metric, row, looks[row.label], measures, costs, going)
                   for row in rows_in_order(table, measure))
    return (f'<div class="rl-scroll"><table class="rl-table rl-results rl-frozen"><thead><tr>'
            f"{''.join(f'<th>{head}</th>' for head in heads)}</tr></thead><tbody>{body}</tbody></table></div>")


def _row(table: Table, metric: Metric, row: Row, look: Look, measures: Sequence[str], costs: Sequence[str],
         going: bool) -> str:
    cells = {measure: _cell(table, row, measure, metric, going) for measure in measures}
    if table.better:
        best = "" if "best" not in row.deltas else f"<small>Δ {mean(row.deltas['best'], metric, sign=True)}</small>"
        cells["best"] = f"{mean(row.best, metric)}{best}"
    ordered = [*(cells[axis] for axis in table.equal), cells[FINAL], *([cells["best"]] if table.better else [])]
    short = sum(state not in ("finished", "imported") for state in row.states)
    said = "not evidence" if row.seeds == 1 else f"{short} not finished" if short else ""
    cost = {"Mean time per run": _time(row),
            "Memory": NONE if row.memory is None else volume(1e6 * row.memory.mean),
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


def _cell(table: Table, row: Row, measure: str, metric: Metric, going: bool) -> str:
    """A mean, and below it the comparison with the baseline, or with the leader; alone if there is no verdict."""
    value = row.final if measure == FINAL else row.equal[measure]
    leader, beaten = table.leaders[measure]
    if len(table.rows) < 2 or measure not in table.verdicts or (measure == FINAL and going):
        return mean(value, metric)
    # Bold marks a winner, which takes enough seeds on both sides.
    won = row.label == leader and any(each.verdict != "none" for each in table.comparisons[measure][leader].values())
    shown = f"<b>{mean(value, metric)}</b>" if won else mean(value, metric)
    if row.label == table.baseline:
        return shown
    if table.baseline:
        other = next(each for each in table.rows if each.label == table.baseline)
        said, why = verdict(row.comparisons[measure], row.label, table.baseline, min(row.seeds, other.seeds), True)
        said = f"Δ {mean(row.deltas[measure], metric, sign=True)}<br>{html.escape(said)}"
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
    """The settings of the runs of `specs` that differ, one line each, as HTML; empty if none differ.

    Groups of one algorithm stand beside each other. Settings that only some of the groups have are folded. A value
    whose words are not its key in files shows the key in a tooltip.
    """
    if not table.config:
        return ""
    algorithms = table.config.get("algorithm", ("",) * len(table.rows))
    order = sorted(range(len(table.rows)), key=lambda place: algorithms.index(algorithms[place]))
    labels = [table.rows[place].label for place in order]
    algorithm_labels = {spec.algorithm: spec.row.label for spec in specs}
    heads = "".join(f"<th>{dot(looks[label])}{html.escape(label)}</th>" for label in labels)

    def drawn(config: Mapping[str, Sequence[Any]]) -> str:
        rows = [(key, [_setting(key, values[place], cells[place], algorithm_labels) for place in order])
                for key, values in config.items() for cells in [value_words(key, values)]]
        body = "".join(f"<tr><th>{html.escape(naming.title(key, specs))}</th>{''.join(cells)}</tr>"
                       for key, cells in rows)
        return (f'<div class="rl-scroll"><table class="rl-table rl-frozen"><thead><tr><th>Setting</th>{heads}</tr>'
                f"</thead><tbody>{body}</tbody></table></div>")

    differing, some = table.config_parts
    return (drawn(differing) if differing else "") + folded(len(some), drawn(some) if some else "")


def folded(count: int, inner: str) -> str:
    """Settings that only some of the groups have, of which there may be dozens, behind a click; empty without any."""
    words = f"{count} setting{'s' * (count > 1)} that only some of the runs have"
    return f'<details class="rl-some"><summary>{words}</summary>{inner}</details>' if count else ""


def _setting(key: str, value: Any, words: str, algorithm_labels: Mapping[str, str]) -> str:
    """A cell: a choice in its words with its key to hover, an algorithm or a run by its title with its own."""
    if key == "algorithm":
        words = algorithm_labels.get(str(value), words)
    if key == "parent":
        words = titled(words)
    hidden = key in FAMILIES or key in ("algorithm", "parent")
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
    """The tooltip of a group with unfinished runs, as HTML; empty if all finished."""
    return f"<br>not finished:<br>{words}" if words else ""
