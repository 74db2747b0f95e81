"""The tabs that only runs of language models have, such as the microscope and the surrogate."""

from __future__ import annotations

import streamlit as st

from app import charts, cost, theme
from app.components.figure_chart import figure_chart
from app.llm import action_tab, judge_tab, probes, process_tab, proxy_tab, reward_tab
from app.llm.microscope import view as microscope
from app.surrogate import place, tokens
from app.training import files
from app.training.feed import Feed
from app.training.tabs import Tabs
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title

NO_CURVE = "This surrogate is not a function of the ratio and the advantage alone, so there is no curve to draw."
LINE_LATER = ("The line through an update appears with the first step. For a model above 6 M parameters it appears "
              "later, because the line gets at most 3 % of the run's time.")


def _surrogate(run: RunRow, feed: Feed, step: int) -> None:
    kind = theme.ground()
    place.link_to(run, step)
    left, right = st.columns(2, gap="large")
    with left:
        _clip_picture(run, feed, step, kind)
    with right:
        line = files.newest(run.id, "lines", step)
        if line is None:
            st.caption(probes.off(feed, step) or LINE_LATER)
            return
        figure_chart(charts.line_figure(line, kind), "line", title="Line through an update",
                     caption=f"{title(run)}, step {line['step']:,}",
                     alt="Mean KL and the surrogates along the line from the old to the new parameters")
        tokens_used = f" on {line['tokens']:,} tokens of its batch" if line.get("tokens") else ""
        st.caption(f"{files.of_step(line['step'], step)}{tokens_used}. α = 0 is the policy before the update, 1 after "
                   "it. The clipped surrogate bends down where the unclipped one keeps rising.")


def _clip_picture(run: RunRow, feed: Feed, step: int, kind: str) -> None:
    samples = files.newest(run.id, "samples", step)
    if samples is None:
        st.caption(probes.off(feed, step) or "No tokens yet. The dots appear with the first samples.")
        return
    if "surrogate" not in samples:
        drawn = any("cut" in completion for group in samples["groups"] for completion in group["completions"])
        st.caption(NO_CURVE if drawn else charts.EARLIER)
        return
    dots = charts.token_dots(samples)
    figure_chart(charts.surrogate_figure(dots, samples["surrogate"], kind), "clip",
                 title="Surrogate against the ratio", caption=f"{title(run)}, step {samples['step']:,}",
                 alt="The surrogate against the ratio, one dot per token")
    counts, updates = charts.counts_of(dots), feed.knobs(samples["step"])["updates_per_batch"]
    part = f" of {groups}" if (groups := files.of_groups(samples)) else ""
    if counts["one"] == counts["tokens"]:
        st.caption(f"All {counts['tokens']:,} tokens{part} have ratio 1: with one update per batch "
                   f"(μ = {updates}) the gradient is taken where old and new policy are equal, so "
                   "the clip does nothing. Raise μ or the mini-batches to see the dots spread.")
    else:
        st.caption(f"{files.of_step(samples['step'], step)}. {counts['tokens']:,} tokens{part} after its last update: "
                   f"{counts['cut']:,} clipped (open circles: no gradient in one more update), "
                   f"{counts['still']:,} with advantage 0, {counts['one']:,} at ratio 1. "
                   "The chart Clipped counts all tokens of the batch, each with its ratio during the updates.")


TABS: Tabs = {
    "Proxy and gold": (proxy_tab.show, proxy_tab.fits), "Reward model": (reward_tab.show, reward_tab.fits),
    "Process reward model": (process_tab.show, process_tab.fits),
    "Microscope": (microscope.show, lambda run: True), "Surrogate": (_surrogate, tokens.has_ratio),
    judge_tab.NAME: (judge_tab.show, judge_tab.fits), action_tab.NAME: (action_tab.show, lambda run: True),
    "Cost": (lambda run, feed, step: cost.of_run(run), lambda run: True),
}
