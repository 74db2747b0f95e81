"""Collect the content of a shared file: the data that the components of the run page draw.

A shared file leaves the machine, so its content is chosen field by field: no host, no process, no folder, no message
of an error. Texts that the lab wrote pass `clean`; prompts and completions are shown as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from latex2mathml.converter import convert

from app import naming
from app.cartpole import picture
from app.compare import verdict, wording
from app.components.projector import BUTTON
from app.components.world_player import episodes
from app.llm import story
from app.llm.history import over, recurring, thinned
from app.llm.microscope import cards
from app.llm.microscope import payload as scope
from app.llm.microscope.arithmetic import MET
from app.llm.step_groups import WATCHED, groups_of
from app.marked import worded
from app.maze import drawing
from app.sharing import MOST_RUNS
from app.status import STATES, duration
from app.theme import DARK, LIGHT, metric_text
from app.training import chart_data, clock, equation, files, goal_line, status_line, term_values
from app.training.feed import Feed
from labcore.analysis.compare.best import BEST, criteria, standing
from labcore.analysis.compare.budget import EQUAL
from labcore.analysis.compare.groups import Group, apart, groups
from labcore.analysis.compare.loading import Reader
from labcore.analysis.compare.table import Table, compare
from labcore.analysis.doctor import doctor
from labcore.catalog.metric import Metric
from labcore.catalog.metrics import METRICS
from labcore.catalog.right import check
from labcore.classic.envs.maze_text import from_text
from labcore.errors import LabError
from labcore.runs.files import called
from labcore.runs.knob_history import KnobHistory
from labcore.runs.spec.run_spec import knobs_of
from labcore.runs.store import thinned as thinned_rows
from labcore.runs.store.rows import RunRow
from labcore.runs.store.store import Store
from labcore.runs.titles import number as number_of
from labcore.runs.titles import title
from labcore.runs.traces import AXES

MOST_KEPT = 40  # steps whose answers and tokens are in the file
MOST_GROUPS = 4  # groups of a step whose tokens are in the file
# An absolute path of any system: a folder, or several, and the name that follows.
_FOLDERS = re.compile(r"(?<![\w.:/\\])(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\'\"“”,;:()]+[/\\])+(?=[^\s/\\]|$)")
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"“”<>]+", re.IGNORECASE)


def clean(text: str) -> str:
    """A text of the lab without folders of this machine and without addresses, which may hold names and keys.

    >>> clean("model /home/me/models/mine at http://me:key@host:8000/v1"), clean("β 0.04 → 0.2, 1/2 of and/or")
    ('model mine at (address)', 'β 0.04 → 0.2, 1/2 of and/or')
    """
    return _FOLDERS.sub("", _ADDRESS.sub("(address)", text))


def content(store: Store, run_ids: Sequence[str]) -> dict[str, Any]:
    """The content of the file, as JSON for `app/components/shared_run`. Raises LabError if a run does not exist or has
    made no step, or there are too many runs."""
    rows = [store.run(run_id) for run_id in dict.fromkeys(run_ids)]
    if len(rows) > MOST_RUNS:
        raise LabError(f"A shared file holds up to {MOST_RUNS} runs, and these are {len(rows)}: name fewer.")
    feeds = {row.id: _feed(store, row) for row in rows}
    runs = [_run(row, feeds[row.id]) for row in rows]
    return {"runs": runs, "together": _together(store, rows, feeds) if len(rows) > 1 else None,
            "projector": asdict(BUTTON), "description": "\n".join(each["description"] for each in runs)}


def _feed(store: Store, row: RunRow) -> Feed:
    found = Feed(row.spec, called=called.read(row.id) if row.spec.kind_row.elsewhere else {})
    found.take(thinned_rows.read(store, row), store.events_after(row.id))
    if not found.steps:
        raise LabError(f"The run {row.id} has made no step yet: share it when its first step is done.")
    return found


def _run(row: RunRow, of: Feed) -> dict[str, Any]:
    """One run: its charts, the steps that were kept, its equation and its settings."""
    kept = _kept(row, of)
    return {"id": row.id, "title": clean(title(row)), "description": _description(row, of),
            "axes": of.axes(), "charts": _charts({row.id: of}, {row.id: row}), "clock": _clock(row, of),
            "kept": kept, "check": check(row.spec.task_row, row.spec.knobs),
            **_algorithm(row, bool(kept)), "settings": _settings(row), "events": _events(of)}


def _algorithm(row: RunRow, with_tokens: bool) -> dict[str, Any]:
    """The run's equation and the functions in the arithmetic of its tokens; both are unknown for a watched run."""
    if row.spec.kind_row.elsewhere:
        return {"equation": "", "paper": "", "sources": {}}
    found = equation.named_sources(row.spec.row, row.spec.knobs) if with_tokens else {}
    return {"equation": mathml(equation.written(row.spec).latex), "paper": row.spec.row.paper,
            "sources": {family: vars(source) for family, source in found.items()}}


def _description(row: RunRow, of: Feed) -> str:
    """The run in a few words, then what it learns and how far it is: for previews of a link to it."""
    spec = row.spec
    elsewhere = spec.kind_row.elsewhere
    model = f"model {naming.model(spec.model)}" if spec.model and not elsewhere else ""
    steps = f"{of.last_step:,} step{'s' * (of.last_step != 1)} in {duration(row.seconds)}"
    what = f"A run of {spec.tool or 'another trainer'}" if elsewhere else f"{spec.row.label} on {spec.task_row.label}"
    about = (what, model, steps, STATES[row.state][1].lower())
    return clean(f"{', '.join(filter(None, about))}. {goal_line.text(spec)}{goal_line.words(of)}".strip())


def _charts(feeds: dict[str, Feed], named: Mapping[str, RunRow]) -> dict[str, Any]:
    """The payload of the live charts, with all rows and without what only a server can answer."""
    first = next(iter(feeds.values()))
    data = chart_data.payload(feeds, full=True, x=next(iter(first.axes())), smooth=0.0, ended=True, named=named)
    for marker in data["markers"]:
        marker |= {"event": None, "beside": False, "text": clean(marker["text"])}  # here all runs are alike
    for run_id, run in data["runs"].items():
        run |= {"label": clean(run["label"]), "settings": clean(run["settings"]), "short": number_of(named[run_id])}
    goal = {"html": goal_line.html(first.spec), "now": goal_line.now(first)}
    return data | {"goal": goal, "status": "", "tiles": status_line.numbers(first), "plotly": ""}


def _clock(row: RunRow, of: Feed) -> dict[str, Any]:
    data = clock.payload(row, of, None)
    return data | {"going": False, "total": of.last_step,
                   "marks": [[step, clean(text)] for step, text in data["marks"]]}


# ---- the steps that were kept -------------------------------------------------------------------------------------


def _kept(row: RunRow, of: Feed) -> list[dict[str, Any]]:
    """Of each step that is in the file, oldest first: the terms of the equation, and where there are samples the
    prompts with their answers and the tokens."""
    steps = [step for step in files.steps_of(row.id, "samples") if step <= of.last_step]
    chosen = _spread(steps, MOST_KEPT) or [of.last_step]
    return [found for step in chosen if (found := _step(row, of, step, steps))]


def _spread(steps: Sequence[int], most: int) -> list[int]:
    """At most so many of the steps, evenly spread, with the first and the last.

    >>> _spread([1, 2, 3, 4, 5, 6, 7, 8, 9], 3), _spread([4], 3), _spread([], 3)
    ([1, 5, 9], [4], [])
    """
    if len(steps) <= most:
        return list(steps)
    return [steps[round(place * (len(steps) - 1) / (most - 1))] for place in range(most)]


def _step(row: RunRow, of: Feed, step: int, steps: Sequence[int]) -> dict[str, Any]:
    samples = files.load(row.id, "samples", step)
    knobs = {} if row.spec.kind_row.elsewhere else of.knobs(step)
    said = _terms(row, of, knobs, samples, step) if knobs else []
    if not samples:
        return {"step": step, "terms": said}
    drawn = PICTURES[row.spec.kind](row, of, step, samples) if row.spec.kind in PICTURES else None
    return {"step": step, "terms": said, "picture": drawn, "story": _story(row, samples, step, steps),
            "tokens": _tokens(samples, knobs)}


def _terms(row: RunRow, of: Feed, knobs: Mapping[str, Any], samples: dict[str, Any] | None, step: int) -> list[Any]:
    """The terms of the run's equation at a step: [sign, label, number, more]."""
    terms = term_values.payload(equation.written(row.spec), of, dict(knobs), samples, step)
    return [[each["sign"], each["label"], each["now"], each["more"]]
            for each in (*terms["terms"], *({"more": [], **each} for each in terms["beside"]))]


def _board(row: RunRow, of: Feed, step: int, samples: dict[str, Any]) -> list[Any]:
    """The board of a maze at a step: [component, its data]."""
    return ["maze_board", drawing.board(from_text(samples["maze"]), row.id, samples, pinned=step)]


def _film(row: RunRow, of: Feed, step: int, samples: dict[str, Any]) -> list[Any] | None:
    """The newest policy of an environment beside the best one: the same. None before the first evaluation."""
    newest = picture.film(row, of, step)
    best = next((found for each in picture.best_first(of, step) if (found := picture.film(row, of, each))), None)
    if not newest or not best:
        return None
    arguments = str(row.spec.knobs["env_args"])
    return ["world_player", episodes.payload(row.id, row.spec.task, newest, best, True, arguments)]


PICTURES = {"maze": _board, "cartpole": _film}


def _story(row: RunRow, samples: dict[str, Any], step: int, steps: Sequence[int]) -> dict[str, Any] | None:
    """The strip of each prompt, by its name; `telling` is the one that is shown unless another one is chosen."""
    groups = groups_of(samples) if "reward_model" not in row.spec.row.models else {}
    if not groups:
        return None
    columns = thinned(steps, step)
    strips = {name: story.payload(groups, name, over(row.id, columns, groups, name), step, step) for name in groups}
    return {"telling": story.telling(groups, None, again=recurring(row.id, columns, groups)), "strips": strips,
            "watched": list(WATCHED)}


def _tokens(samples: dict[str, Any], knobs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The microscope's cards, and the tokens of each completion on them."""
    found = {kind: items for kind, items in cards.found(samples).items() if items}
    if not found:
        return None
    kind, items = next(iter(found.items()))
    first = next(iter(cards.KINDS[kind].sorts))
    kept = [items[place] for place in cards.ordered(kind, items, first)[:MOST_GROUPS]]
    shelf = scope.shelf(kind, kept, knobs)
    inside = {f"{place}.{at}": scope.inside(kind, item, at, MET, knobs) | {"moments": False}
              for place, item in enumerate(kept) for at in {line["at"] for line in shelf["cards"][place]["rows"]}}
    sort, shown = shelf["sorts"][0][0], shelf["filters"][0][0]
    of = f"{len(kept)} of {len(items)} {cards.KINDS[kind].label.lower()}" if len(kept) < len(items) else ""
    return shelf | {"kinds": [[kind, cards.KINDS[kind].label, len(kept)]], "kind": kind, "sort": sort, "filter": shown,
                    "chosen": list(cards.telling(kind, kept)), "inside": inside,
                    "part": of}


# ---- settings, events, equation -----------------------------------------------------------------------------------


def _settings(row: RunRow) -> list[list[str]]:
    """The settings of the run: [name, value, "same" where a knob is at its default]. For a
    watched run only numbers are included, because texts may contain paths and keys."""
    spec = row.spec
    if spec.kind_row.elsewhere:
        sent = [(naming.name(key), value) for key, value in spec.knobs.items() if isinstance(value, int | float)]
        return [[clean(name), clean(naming.written(name, value)), ""] for name, value in (
            ("Tool", spec.tool), ("Algorithm", spec.row.label), *sent) if value != ""]
    fields = {"algorithm": spec.row.label, "task": spec.task_row.label, "model": spec.model, "data": spec.data,
              "seed": spec.seed, "steps": spec.steps}
    said = [[naming.title(key).capitalize() if key == "seed" else naming.title(key), naming.written(key, value), ""]
            for key, value in fields.items() if value not in (None, "")]
    said += [[knob.title, f"{naming.written(knob.key, spec.knobs[knob.key])} {knob.unit}".strip(),
              "same" if spec.knobs[knob.key] == knob.default else ""]
             for knob in spec.declared if knob.key in spec.knobs and spec.knobs[knob.key] not in ("", None)]
    return [[name, clean(value), mark] for name, value, mark in said]


def _events(of: Feed) -> list[list[Any]]:
    """Changes of knobs, and what the doctor said: [step, text]."""
    moves = [(change.step, change.text) for change in KnobHistory(of.spec, of.events).moves]
    said = [(each.step, each.finding.verdict) for each in doctor.said(of.events) if each.finding]
    own = knobs_of(of.spec.row, of.spec.task_row)
    return [[step, clean(worded(text, own))] for step, text in sorted(moves + said)]


def mathml(latex: str) -> str:
    """An equation as MathML, which browsers draw without a script.

    A browser breaks no line within a formula, so each line of the equation is a box, and so is each part of a line.

    >>> mathml(r"a \\\\ b,\\quad c").count("<div>"), mathml(r"a \\\\ b,\\quad c").count("<math")
    (2, 3)
    >>> "arg max" in mathml(r"\\arg\\max_a Q")
    True
    """
    lines = re.sub(r"\\(begin|end)\{gathered\}", "", latex).split(r"\\")
    parts = [re.split(r"(?<=,)\s*\\quad", line) for line in lines]
    return "".join(f"<div>{''.join(map(_formula, line))}</div>" for line in parts)


def _formula(latex: str) -> str:
    names = latex.replace(r"\arg\max", r"\operatorname{argmax}").replace(r"\arg", r"\operatorname{arg}")
    found = convert(re.sub(r"_\{([a-z]{2,})\}", r"_{\\text{\1}}", names), display="block")
    return str(found).replace(">argmax<", ">arg max<")  # the library leaves out the spaces of names


# ---- several runs -------------------------------------------------------------------------------------------------


def _together(store: Store, rows: Sequence[RunRow], feeds: dict[str, Feed]) -> dict[str, Any]:
    """All runs over each other, and their comparison as a table."""
    together = {run_id: Feed(each.spec, each.steps, each.events, logged=each.logged, own=each.own)
                for run_id, each in feeds.items()}
    charts = _charts(together, {row.id: row for row in rows})
    for place, (row, run) in enumerate(zip(rows, charts["runs"].values(), strict=True)):
        run |= {"colour": _hue(place), "muted": False, "short": clean(f"{row.spec.row.label} {number_of(row)}")}
    for panel in charts["panels"]:
        panel["metrics"] = panel["metrics"][:1]  # so that the lines' names are those of the runs
    axes = {key: name for key, name in next(iter(feeds.values())).axes().items()
            if all(key in each.axes() for each in feeds.values())}
    return {"charts": charts, "axes": axes, "table": _compared(store, rows)}


def _hue(place: int) -> list[str]:
    return [LIGHT[place % len(LIGHT)], DARK[place % len(DARK)]]


def _compared(store: Store, rows: Sequence[RunRow]) -> str:
    """The comparison as HTML; a sentence where the runs share no metric."""
    traces = Reader(store).traces(rows, list(METRICS))
    try:
        table = compare(traces, words=naming.setting, named=naming.preset)
    except LabError as error:
        return f"<p>{escape(clean(worded(str(error))))}</p>"
    found = groups(traces, naming.setting, naming.preset)
    metric = naming.metric(table.metric, [row.spec for row in rows])
    return _verdict(found, metric) + _table(table, metric, [row.id for row in rows])


def _verdict(found: Sequence[Group], metric: Metric) -> str:
    """The sentence that says who is ahead at each equal cost and which settings differ; empty if all runs have one
    setting."""
    able = [each for each in criteria(found, metric.key) if each != BEST]
    if len(found) < 2 or not able:
        return ""
    equal = [each for each in able if each in EQUAL] or able[:1]
    stands = [standing(found, metric.key, each) for each in equal]
    if len(stands[0].means) < 2:  # the others have no value of it
        return ""
    said = (verdict.headline(stands, metric, {group.label: group.label for group in found}),
            verdict.limits(stands[0], metric), verdict.differ([*apart(found)]))
    return f'<p class="rl-goal">{escape(clean(" ".join(filter(None, said))))}</p>'


def _table(table: Table, metric: Metric, runs: Sequence[str]) -> str:
    head = ["Setting", "Seeds", f"{metric.label}, at the end",
            *(f"at {wording.place(at)} {AXES[axis]}" for axis, at in table.equal.items()), "Time"]
    means = [["–" if each is None else metric_text(metric, each.mean, exact=True) for each in (
        row.final, *map(row.equal.get, table.equal))] for row in table.rows]
    body = [[row.label, str(row.seeds), *said, duration(row.seconds.mean) if row.seconds else "–"]
            for row, said in zip(table.rows, means, strict=True)]
    differing, some = ([[naming.title(key), *(naming.written(key, value) if value is not None else "–"
                                              for value in values)]
                        for key, values in part.items() if key != "algorithm"]  # the labels say it
                       for part in table.config_parts)
    groups = ["Setting", *(row.label for row in table.rows)]
    hues = [_hue(runs.index(row.runs[0])) for row in table.rows]
    return (_html(head, body, hues) + "".join(f"<p>{escape(clean(note))}</p>" for note in table.notes)
            + ("<h3>Settings that differ</h3>" if differing or some else "")
            + (_html(groups, differing) if differing else "") + wording.folded(len(some), _html(groups, some)))


def _html(head: Iterable[str], body: Iterable[Sequence[str]], hues: Sequence[Sequence[str]] = ()) -> str:
    """A table of cleaned texts; of rows with a hue, light and dark, a dot in it stands first."""
    dots = [f'<i style="background:light-dark({light},{dark})"></i>' for light, dark in hues]
    rows = "".join(f"<tr><td>{dots[place] if dots else ''}{escape(clean(first))}</td>"
                   f"{''.join(f'<td>{escape(clean(cell))}</td>' for cell in rest)}</tr>"
                   for place, (first, *rest) in enumerate(body))
    heads = "".join(f"<th>{escape(clean(cell))}</th>" for cell in head)
    return f'<div class="rl-scroll"><table class="rl-table"><tr>{heads}</tr>{rows}</table></div>'
