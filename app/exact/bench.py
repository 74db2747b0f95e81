"""The tab of the estimator bench: gradients of a frozen policy against the exact one, measured by a job.

A link holds the settings of the measurement: the rows, a knob with its values, and the number of batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from app import jobs, link, theme
from app.components.figure_chart import figure_chart
from app.exact import bench_charts as charts
from app.lab import active
from app.link import Fault, Param, param
from app.tokens import literal
from app.training.feed import Feed
from labcore.catalog import choices, kinds
from labcore.llm.sizing import bench
from labcore.runs.files import tables
from labcore.runs.spec.run_spec import RunSpec, every_knob, knobs_of
from labcore.runs.store.rows import RunRow

TABLE = kinds.kind("exact")
BATCHES = (50, 100, 200, 500)
MOST = 8  # algorithms at once
# The knobs that the page offers, each with values that show what it does.
VALUES: dict[str, tuple[Any, ...]] = {
    "group_size": (2, 4, 8, 16), "beta": (0.0, 0.1, 0.2, 0.5), "temperature": (0.7, 1.0, 1.3),
    "updates_per_batch": (1, 2, 4), "clip_high": (0.05, 0.2, 1.0), "gae_lambda": (0.0, 0.5, 0.9, 1.0),
    "normalisation": choices.NORMALISATION.names, "aggregation": choices.AGGREGATION.names,
    "pairs_per_step": (4, 16, 64)}
WITH = {"clip_high": {"updates_per_batch": 4}}  # what a knob needs beside it to do anything
ASKED = Param("bench", "")
CSS = """
<style>
.rl-bench td{white-space:nowrap}.rl-bench :is(td,th):nth-last-child(-n+7){text-align:right}
.rl-why{margin:.2rem 0 0;padding-left:1.1rem;font-size:14px;line-height:1.5}.rl-why li{margin:0 0 .4rem}
.st-key-bench_stale{opacity:.45}
</style>"""
LEAD = ("How good an estimate of the true gradient is the gradient of one batch? A policy is frozen on this run's "
        "problem, batches are drawn as a run draws them, and each algorithm's gradient is compared with the exact one. "
        f"{bench.frozen()}")


@dataclass(frozen=True)
class Bench:
    """A question to the bench; none without `algorithms`."""

    algorithms: tuple[str, ...] = param((), link.some_of(TABLE.algorithms))
    knob: str = param("", link.one_of(tuple(VALUES)))
    batches: int = param(100, link.whole(among=BATCHES))
    critic: str = param(bench.CRITICS[0], link.one_of(bench.CRITICS))

    def to_text(self) -> str:
        """Write all but defaults as "algorithms=rloo,grpo;knob=beta"."""
        return ";".join(f"{key}={said}" for key, said in link.written(self).items())

    def spec(self, run: RunSpec) -> Any:
        """The job that measures it on a run's problem and model."""
        own = {knob.key: run.knobs[knob.key] for knob in run.task_row.knobs}
        knobs = {**own, "max_new_tokens": run.knobs["max_new_tokens"], **WITH.get(self.knob, {})}
        model = run.model if run.model in TABLE.models else TABLE.model
        return bench.asked(self.algorithms, knob=self.knob, values=VALUES.get(self.knob, ()), batches=self.batches,
                           task=run.task, model=model, knobs=knobs, critic=self.critic)


def read(text: str) -> tuple[Bench, list[Fault]]:
    """Read a link's question, and the faults in it."""
    parts = {key: said for key, _, said in (part.partition("=") for part in text.split(";") if part)}
    asked, faults = link.read(Bench, parts)
    faults += [Fault(key, said, "there is no such choice") for key, said in parts.items() if key not in vars(Bench())]
    return replace(asked, algorithms=asked.algorithms[:MOST]), faults


def lacking(algorithms: Sequence[str], knob: str, run: RunSpec) -> list[str]:
    """The labels of the algorithms that do not have the knob."""
    rows = [TABLE.algorithms[key] for key in algorithms]
    return [row.label for row in rows if knob and knob not in {each.key for each in knobs_of(row, run.task_row)}]


def tab(run: RunRow, feed: Feed, step: int) -> None:
    """The settings, and the results once they are measured."""
    asked, faults = read(link.get(ASKED))
    for fault in faults:
        st.warning(literal(fault.sentence), icon=":material/error:")
    st.caption(LEAD)
    _form(asked, run.spec)
    if not asked.algorithms:
        return
    if others := lacking(asked.algorithms, asked.knob, run.spec):
        st.info(f"{', '.join(others)} {'have' if len(others) > 1 else 'has'} no knob {asked.knob}: leave "
                f"{'them' if len(others) > 1 else 'it'} out, or choose another knob.", icon=":material/info:")
        return
    found, fresh = jobs.result(asked.spec(run.spec), "Sampling batches and computing the gradients of every algorithm",
                               "bench", polled=active(run))
    if found is not None:
        with st.container(key="bench" if fresh else "bench_stale"):
            _shown(found, run)


def _form(asked: Bench, spec: RunSpec) -> None:
    """Draw the form of algorithms and knob. Nothing is measured before the button is pressed."""
    usual = asked.algorithms or tuple(dict.fromkeys((spec.algorithm, *bench.USUAL[:4])))
    name = f"bench:{asked.to_text()}:{spec.algorithm}"
    with st.form("bench_form", border=False):
        st.multiselect("Algorithms", list(TABLE.algorithms), usual, key=f"{name}:algorithms", max_selections=MOST,
                       format_func=lambda key: TABLE.algorithms[key].label)
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            knobs = ["", *VALUES]
            st.selectbox("Knob", knobs, knobs.index(asked.knob), key=f"{name}:knob", width=280, format_func=_knob_words,
                         help="Every algorithm is measured at each of these values.")
            st.selectbox("Batches per row", BATCHES, BATCHES.index(asked.batches), key=f"{name}:batches", width=130,
                         help="More: narrower intervals, a longer wait.")
            st.selectbox("Critic", bench.CRITICS, bench.CRITICS.index(asked.critic), key=f"{name}:critic", width=130,
                         help="For algorithms with a critic: untrained, as at the start of a run, or with the exact "
                              "values.")
            st.form_submit_button("Measure", icon=":material/straighten:", on_click=_ask, args=(name,))


def _knob_words(knob: str) -> str:
    if not knob:
        return "none"
    said = (charts.value({"value": each}) for each in VALUES[knob])
    return f"{every_knob()[knob].label}: {', '.join(said)}"


def _ask(name: str) -> None:
    state = st.session_state
    link.put(ASKED, Bench(tuple(state[f"{name}:algorithms"]), state[f"{name}:knob"], state[f"{name}:batches"],
                          state[f"{name}:critic"]).to_text())


def _shown(found: dict[str, Any], run: RunRow) -> None:
    kind, columns = theme.ground(), st.columns(2, gap="large")
    caption = f"{found['task']}, {found['batches']:,} batches per row, 95 % intervals"
    for place, (key, title, unit, ideal) in enumerate(charts.PANELS):
        with columns[place % 2]:
            st.markdown(f"**{title}**")
            figure_chart(charts.figure(found, key, unit, ideal, kind), f"bench:{key}", title=title, caption=caption,
                         alt=charts.words(found, key, title))
    st.html(CSS + charts.table(found))
    st.caption(literal(" ".join(bench.notes(found))))
    if why := charts.reasons(found):
        with st.expander("Why the mean gradient differs from the exact one"):
            st.html(f'<ul class="rl-why">{why}</ul>')
    st.download_button("Table as CSV", _csv(bench.records(found)), f"estimators_{run.spec.task}.csv", "text/csv",
                       icon=":material/download:", key="bench:csv", on_click="ignore")


def _csv(rows: list[dict[str, Any]]) -> bytes:
    return tables.written(list(rows[0]), (list(row.values()) for row in rows))
