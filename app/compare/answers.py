"""Show the answers of the newest checkpoints of all compared runs to the same questions, side by side."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app import jobs, naming
from app.lab import lab
from app.on_request import large, requested
from app.tokens import written
from labcore.analysis.compare.statistics import interval
from labcore.catalog.amounts import percent
from labcore.catalog.right import check
from labcore.errors import LabError
from labcore.runs.jobs import Spec
from labcore.runs.models import source, steps
from labcore.runs.spec.model_names import BASE, Model, parse
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title as title_of

COUNT, SHOWN = 64, 8  # questions, and those whose answers are shown
MOST = 24  # runs
SEED, TEMPERATURE = 0, 1.0
CSS = """
<style>
.rl-table.rl-answers th{vertical-align:bottom;opacity:1;min-width:118px;font-weight:400}
.rl-answers th b{display:block}.rl-answers th small{font-size:13px;opacity:.72;font-weight:400}
.rl-answers tr>:first-child{position:sticky;left:0;background:light-dark(#FFFFFF,#14171B);padding-right:16px}
.rl-answers tfoot td{border:0;padding-top:8px}
.rl-answers .rl-dot{width:10px;height:10px;border-radius:50%;display:inline-block;margin-right:.4rem}
.rl-reach{position:relative;height:12px;min-width:104px;margin-top:3px}
.rl-reach::before{content:"";position:absolute;inset:5px 0;background:color-mix(in srgb,currentColor 22%,transparent)}
.rl-reach i{position:absolute;top:3px;height:6px;border-radius:3px;opacity:.5}
.rl-reach b{position:absolute;top:1px;width:10px;height:10px;margin-left:-5px;border-radius:50%}
</style>"""
GREY = "#8A939D"


def panel(run_ids: Sequence[str], colours: Mapping[str, str] | None = None, polled: bool = False) -> None:
    """The table of a few answers and of the shares of right ones. `colours` are the runs' colours on the surrounding
    page.

    `polled`: the surrounding page draws this again every few seconds.
    """
    runs = language_runs(run_ids)
    if not runs:
        st.info("These runs cannot answer prompts. Choose language-model runs that have a checkpoint.",
                icon=":material/info:")
        return
    if len({_task(run) for run in runs}) > 1:
        st.info("These runs learnt different tasks, so no question fits all of them. Compare runs of one task.",
                icon=":material/info:")
        return
    left, runs = runs[MOST:], by_algorithm(runs[:MOST])
    names = [Model(run.id).pinned.name for run in runs]
    above, below = st.container(), st.container()
    with below:  # so that the table stays where it is while newer checkpoints answer
        found = _answered(runs, names, polled)
    if found is None:
        return
    heads = {run.id: (title_of(run), " · ".join(filter(None, (naming.apart(run.spec), f"seed {run.spec.seed}"))))
             for run in runs}
    above.html(CSS + table(found, heads, colours or {}, check(runs[0].spec.task_row, runs[0].spec.knobs)))
    count = len(found["questions"])
    above.caption(f"The first {min(SHOWN, count)} of {count} questions, drawn with seed {SEED} at temperature "
                  f"{TEMPERATURE:g}; all models use the same random numbers. The 95 % interval (exact binomial) "
                  f"covers the choice of these {count} questions for one checkpoint. It does not cover other training "
                  f"seeds."
                  + (f" {len(left)} more runs are left out." if left else ""))
    above.page_link("../pages/playground.py", label="Ask them yourself in the Playground", icon=":material/forum:",
                    query_params={"runs": ",".join(run.id for run in runs[:3])})


def _answered(runs: Sequence[RunRow], names: Sequence[str], polled: bool) -> dict[str, Any] | None:
    """The answers of the checkpoints `names`; None until the job is done. Large models answer only on request."""
    ids, limit = tuple(run.id for run in runs), int(runs[0].spec.knobs["max_new_tokens"])
    doing = f"{len(names)} checkpoint{'s answer' if len(names) > 1 else ' answers'} {COUNT} questions"
    spec: Spec | None = {"job": "quiz", "models": [*_base(runs), *names], "count": COUNT, "seed": SEED,
                         "temperature": TEMPERATURE, "max_new_tokens": limit}
    if spec and any(large(run.spec) for run in runs):
        spec = requested("answers", ids, spec, f"{doing}, with up to {limit:,} tokens each.")
    return jobs.result(spec, doing, "answers", ids, ids, polled)[0] if spec else None


def language_runs(run_ids: Sequence[str]) -> list[RunRow]:
    """Those of the runs that are language models and have a checkpoint that can answer."""
    return [run for run in [lab().find(run_id) for run_id in run_ids] if run is not None and supported(run)]


def supported(run: RunRow) -> bool:
    return run.spec.kind == "llm" and bool(steps(run.id))


def _task(run: RunRow) -> tuple[Any, ...]:
    spec = run.spec
    return spec.task, spec.data, *spec.of_task.items()


def by_algorithm(runs: Sequence[RunRow]) -> list[RunRow]:
    """The runs, with runs of one algorithm beside each other, otherwise in their order."""
    order = list(dict.fromkeys(run.spec.algorithm for run in runs))
    return sorted(runs, key=lambda run: order.index(run.spec.algorithm))


def _base(runs: Sequence[RunRow]) -> list[str]:
    """The base of all runs where it is one and the same, to stand beside them."""
    try:
        found = {source(Model(run.id, BASE)).weights for run in runs}
    except LabError:  # it is gone: the runs can be asked all the same
        return []
    return [Model(runs[0].id, BASE).name] if len(found) == 1 and None not in found else []


def table(found: dict[str, Any], heads: Mapping[str, tuple[str, str]], colours: Mapping[str, str], said: str) -> str:
    """Questions down, models across, and each one's share of right answers below: HTML.

    `said` is the check that a right answer has passed. `heads` has the name of each run and the words below it; `heads`
    and `colours` have the runs as keys.
    """
    models = "".join(f"<th>{_head(column['model'], heads, colours)}</th>" for column in found["columns"])
    rows = "".join(f"<tr><td><code>{written(question['prompt'])}</code></td>"
                   + "".join(f"<td>{_cell(column['answers'][row], said)}</td>" for column in found["columns"]) + "</tr>"
                   for row, question in enumerate(found["questions"][:SHOWN]))
    shares = "".join(f"<td>{share(column, _colour(column['model'], colours))}</td>" for column in found["columns"])
    return (f'<div class="rl-scroll"><table class="rl-table rl-answers"><thead><tr><th>question</th>{models}</tr>'
            f"</thead><tbody>{rows}</tbody><tfoot><tr><td>right ({said})</td>{shares}</tr></tfoot></table></div>")


def _head(name: str, heads: Mapping[str, tuple[str, str]], colours: Mapping[str, str]) -> str:
    """A model: a run by its name and step, or the base; its id, as links have it, is hovered."""
    model = parse(name)
    first, second = (naming.model_title(name), "") if model.stage else heads[model.run]
    step = "" if model.step is None else f"step {model.step:,} · "
    return (f'<span title="{html.escape(name)}"><b><span class="rl-dot" style="background:{_colour(name, colours)}">'
            f"</span>{html.escape(first)}</b><small>{html.escape(step + second)}</small></span>")


def _colour(name: str, colours: Mapping[str, str]) -> str:
    """The colour of the run; a base, which is common to all, is grey."""
    model = parse(name)
    return GREY if model.stage else colours.get(model.run, GREY)


def _cell(answer: dict[str, Any], said: str) -> str:
    mark = {None: "", True: f'<span class="rl-pos" title="right (check: {said})">✓</span> ',
            False: f'<span class="rl-muted" title="wrong (check: {said})">✗</span> '}[answer["exact"]]
    cut = ' <span class="rl-muted" title="cut at the length limit">(cut)</span>' if answer["truncated"] else ""
    return f"{mark}<code>{written(answer['text'])}</code>{cut}"


def share(column: dict[str, Any], colour: str) -> str:
    """The share of right answers, with its interval as numbers and as a line from 0 to 1: HTML."""
    judged = [answer["exact"] for answer in column["answers"] if answer["exact"] is not None]
    if not judged:
        return '<span class="rl-muted">no verifier</span>'
    right = sum(judged)
    low, high = interval(right, len(judged))
    reach = f"{percent(low)} to {percent(high)}"
    return (f"<b>{percent(right / len(judged))}</b> <span class='rl-muted'>{right} of {len(judged)}</span><br>"
            f"<span class='rl-muted'>{reach}</span>"
            f'<div class="rl-reach" role="img" aria-label="95 % interval {reach}"><i style="left:'
            f'{low:.1%};width:{high - low:.1%};background:{colour}"></i><b style="left:{right / len(judged):.1%};'
            f'background:{colour}"></b></div>')
