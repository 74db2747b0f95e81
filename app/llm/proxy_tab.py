"""The tab of a run that is rewarded by a proxy: whether gold follows, and remedies where it does not."""

from __future__ import annotations

import streamlit as st

from app import theme
from app.components.figure_chart import figure_chart
from app.lab import lab
from app.llm import chain, labelling, proxy, proxy_figures
from app.llm.proxy import Point
from app.marked import worded
from app.session import runs_of, show_error, show_run
from app.tokens import literal
from app.training import forking
from app.training.feed import Feed
from labcore.analysis.doctor.signal import FIRST_BETA, GOLD_FELL
from labcore.catalog.choices import REWARD, chosen
from labcore.catalog.goal import reward_words
from labcore.catalog.knob import Value, shown
from labcore.errors import LabError
from labcore.runs import fork
from labcore.runs.files.paths import read_only
from labcore.runs.spec.run_spec import RunSpec, knobs_of
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title as title_of

WORST_CASE = "worst_case_ensemble"
OUTCOME = 1.0  # weight of the outcome beside rewards of steps
STRONGER = 3  # times β, where it is not below what the task takes


def show(run: RunRow, feed: Feed, step: int) -> None:
    """Both rewards over the steps and over √KL, a sentence on them at the shown step, and remedies."""
    points = proxy.course(feed.steps)
    if not points:
        st.caption("Both rewards are drawn after the first step.")
        return
    means, at, kind = proxy.smoothed(points), step if step < feed.last_step else None, theme.ground()
    st.markdown(literal(proxy.words(means)))
    st.caption(literal(f"Rewards: {reward_words(run.spec.knobs)}."))
    if proxy.exploits(means) and not read_only():
        _cures(run, proxy.peak(means))
    apart = bool(chain.scorers(run.spec))
    left, right = st.columns(2, gap="large")
    for place, title, figure in (
            (left, "Proxy and gold over the steps", proxy_figures.over_steps(points, means, at, apart, kind)),
            (right, "Proxy and gold against √KL", proxy_figures.over_distance(points, means, at, apart, kind))):
        with place:
            st.markdown(f"**{title}**")
            figure_chart(figure, f"proxy:{title}", title=title, caption=title_of(run),
                         alt=f"{title}. {proxy.words(means)}")


def fits(run: RunRow) -> bool:
    """True if the run's rewards come from a proxy."""
    return bool(chain.scorers(run.spec)) or any(
        source.proxy and not source.scorer for source in chosen(REWARD, run.spec.knobs))


def nearest(there: list[int], step: int) -> int:
    """The checkpoint nearest to a step; of two the earlier one."""
    return min(there, key=lambda each: (abs(each - step), each))


def stronger(spec: RunSpec, beta: float) -> tuple[str, Value] | None:
    """The knob that holds the policy closer to its reference, and its value: the task's own β, or where β is not below
    it STRONGER times as much. None where placement and β are both off: one knob alone would do nothing."""
    if spec.knobs["kl_placement"] == "off":
        return ("kl_placement", "loss") if beta else None
    usual = next(float(knob.default) for knob in spec.declared if knob.key == "beta")
    return "beta", usual if beta < usual else float(f"{STRONGER * beta:.1g}") or FIRST_BETA


def _cures(run: RunRow, best: Point) -> None:
    """Buttons that open the fork dialog at the checkpoint nearest to gold's peak."""
    there = fork.steps_to_fork(run.id)
    if not there:
        return
    start = nearest(there, best.step)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="cures"):
        st.html(f'<div class="rl-status" title="The checkpoint nearest to the peak of gold"><b>Remedies</b>'
                f'<span class="rl-muted">from step {start:,}</span></div>', width="content")
        _stronger_kl(run, start)
        st.button("Stop when gold falls", key="cure:stop", icon=":material/flag:", on_click=forking.open_with_value,
                  args=(run.id, "stop_gold_fall", GOLD_FELL, start + 1),
                  help=f"Early stopping: the fork ends once gold is {GOLD_FELL:g} below its best")
        if any(source.process for source in chosen(REWARD, run.spec.knobs)):
            st.button(f"Fork with outcome × {OUTCOME:g}", key="cure:outcome", icon=":material/verified:",
                      on_click=forking.open_with_value, args=(run.id, "outcome_weight", OUTCOME, start + 1),
                      help="The verifier's reward is added at the end of each completion")
        elif chain.scorers(run.spec):
            _other_rewards(run, start)
        else:
            st.button("Fork with the verifier", key="cure:reward", icon=":material/verified:",
                      on_click=forking.open_with_value, args=(run.id, "reward_source", "verifier", start + 1),
                      help="Fix the reward: the verifier replaces the proxy")


def _stronger_kl(run: RunRow, start: int) -> None:
    found = stronger(run.spec, float(run.spec.knobs["beta"]))
    if found is None:
        return
    key, value = found
    name = next(knob.name for knob in knobs_of(run.spec.row, run.spec.task_row) if knob.key == key)
    st.button(f"Fork with {name} {shown(value)}", key="cure:kl", icon=":material/anchor:",
              on_click=forking.open_with_value, args=(run.id, key, value, start + 1),
              help="A stronger KL penalty holds the policy near its reference, where the proxy is more reliable")


def _other_rewards(run: RunRow, start: int) -> None:
    """Ways to change the reward itself: pairs of this policy, and an ensemble."""
    st.button("Label fresh pairs", key="cure:pairs", icon=":material/thumbs_up_down:", on_click=labelling.open_,
              help="Train the reward model on pairs of this policy, where its scores are wrong; then start RL again")
    members = chain.ensemble(run.spec, runs_of(run.spec.kind, "finished", beside=run))
    several = len(members) > 1
    if run.spec.knobs["reward_source"] != WORST_CASE:
        st.button(f"Lowest of {len(members)} reward models" if several else "Train a second reward model",
                  key="cure:ensemble", icon=":material/groups:", on_click=_ensemble, args=(run, start, members),
                  help="An ensemble: the reward of a completion is the lowest score of several reward models"
                  + ("" if several else "; it needs two"))


def _ensemble(run: RunRow, start: int, members: list[str]) -> None:
    """Fork with the lowest score of several reward models; where there is one, train another. Opens what it starts."""
    try:
        spec = (fork.fork_spec(lab().store, run.id, start, knobs={"reward_source": WORST_CASE,
                                                                  "reward_model": ",".join(members)})
                if len(members) > 1 else chain.another_reward_model(run.spec, len(members)))
        opened = lab().launcher.start(spec)
    except LabError as error:
        show_error(worded(str(error), knobs_of(run.spec.row, run.spec.task_row)))
    else:
        show_run(opened, run.spec.kind)
    st.session_state[labelling.MOVED] = True
