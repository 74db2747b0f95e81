"""The tabs of an exact run: π against π*, and those that it shares with language models."""

from __future__ import annotations

import html

import streamlit as st

from app import charts, theme
from app.components.figure_chart import figure_chart
from app.exact import bench
from app.exact.policy_figure import END, NAMES, colour, policy_figure, words
from app.llm import own_tabs
from app.theme import number
from app.training import files
from app.training.feed import Feed
from app.training.tabs import Tabs
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title as title_of

SIGNS = {"policy": "■", "reference": "━", "optimum": "◇"}
NO_OPTIMUM = ("At β = 0, where the KL is only measured, or without a reference, the best policy writes only the best "
              "completions, so there is no π* ∝ π_ref e^(R/β) to draw and no distance to it.")


def _against_optimum(run: RunRow, feed: Feed, step: int) -> None:
    """A figure for each prompt at the step that the page shows, and in words what is exact about it."""
    samples = files.newest(run.id, "samples", step)
    if samples is None:
        st.caption("The policies are drawn after the first step.")
        return
    if "exact" not in samples:
        st.caption(charts.EARLIER)
        return
    exact, kind = samples["exact"], theme.ground()
    keys = [key for key in NAMES if key in exact["prompts"][0]["rest"]]
    st.html('<div style="font-size:14px">' + " &nbsp; ".join(
        f'<span style="color:{colour(key, kind)};font-weight:700" aria-hidden="true">{SIGNS[key]}</span> '
        f"{html.escape(NAMES[key])}" for key in keys) + f' &nbsp; {END} the end token</div>')
    prompts = exact["prompts"]
    across = 2 if len(prompts) == 4 else len(prompts)
    for start in range(0, len(prompts), across):
        for column, prompt in zip(st.columns(across, gap="medium"), prompts[start:start + across], strict=False):
            with column:
                st.markdown(f"Prompt **{prompt['prompt']}**")
                figure_chart(policy_figure(prompt, kind), f"exact:{prompt['prompt']}", alt=words(prompt),
                             title=f"π, π_ref and π* after the prompt {prompt['prompt']}",
                             caption=f"{title_of(run)}, step {samples['step']:,}")
    at = next((row.metrics for row in reversed(feed.steps) if row.step == samples["step"]), {})
    distance = f" KL(π‖π*) = {number(at['exact/distance'])} nats/completion." if "exact/distance" in at else ""
    optimum = f" β = {exact['beta']:g}." if "optimum" in keys else f" {NO_OPTIMUM}"
    st.caption(f"{files.of_step(samples['step'], step)}, before its updates. All {exact['completions']:,} completions "
               f"of each prompt are enumerated, so these numbers are exact.{distance}{optimum}")


TABS: Tabs = {
    "Policy against π*": (_against_optimum, lambda run: True),
    **{name: own_tabs.TABS[name] for name in ("Microscope", "Surrogate")},
    "Estimator bench": (bench.tab, lambda run: True),
}
