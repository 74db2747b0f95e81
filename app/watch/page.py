"""The Watch page. It shows a watched run as the page of language models shows its runs. Without a run it explains how
to send one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app import session
from app.llm import judge_tab, story
from app.llm.microscope import view
from app.training import bar, export, files, live
from app.training.feed import Feed
from app.training.tabs import Tabs
from app.watch import beside, teach
from labcore.catalog.kinds import WATCH
from labcore.errors import listed
from labcore.runs.store.rows import RunRow

# (field of a completion, its name in a sentence, the quantity that cannot be computed without it).
TOKENS, LOGPROBS = "tokens", "logprobs"
_BY_TOKEN = (("old_logprobs", "the old policy's log-probs", "ratio"),
             ("ref_logprobs", "the reference model's log-probs", "KL"), ("entropy", "entropies", "entropy"))


def has_completions(run: RunRow) -> bool:
    """True if the trainer sent any completions of the run."""
    return bool(files.steps_of(run.id, "samples"))


def has_groups(run: RunRow) -> bool:
    """True if the newest completions are scored answers, not the chosen and rejected side of a pair."""
    steps = files.steps_of(run.id, "samples")
    return bool(steps and (files.read(run.id, "samples", steps[-1]) or {}).get("groups"))


def missing(samples: Mapping[str, Any], credited: bool = True) -> str:
    """A sentence on the data that the completions of a step lack; empty if nothing is missing. `credited`: the
    algorithm may have advantages."""
    there = [each for group in samples.get("groups") or () for each in group["completions"]]
    return " ".join(filter(None, (_of_completions(there, credited), _of_tokens(there, credited)))) if there else ""


def _of_completions(there: list[Mapping[str, Any]], credited: bool) -> str:
    if not credited:
        return ""
    rewards, advantages = (any(each.get(key) is not None for each in there) for key in ("reward", "advantage"))
    if not rewards and not advantages:
        return "The trainer sent neither rewards nor advantages, so only texts are shown."
    return "" if advantages else ("The trainer did not send advantages, so the lab cannot tell which completions the "
                                  "update reinforced.")


def _of_tokens(there: list[Mapping[str, Any]], credited: bool) -> str:
    if not any(each.get(TOKENS) for each in there):
        return "It sent no tokens, so per-token values are not available." if not any(
            each.get(LOGPROBS) for each in there) else "It sent no token texts, so completions are shown whole."
    if not any(each.get(LOGPROBS) for each in there):
        return "It sent no log-probs, so the probability, ratio and KL of each token are not available."
    lacks = [(what, unknown) for key, what, unknown in _BY_TOKEN if not any(each.get(key) for each in there)
             and (credited or key != "old_logprobs")]  # given texts were sampled by no old policy
    if not lacks:
        return ""
    unknown = [each for _, each in lacks]
    return (f"It did not send {listed([what for what, _ in lacks])}, so the {listed(unknown)} of each token "
            f"{'are' if unknown[1:] else 'is'} not available.")


def microscope(run: RunRow, feed: Feed, step: int) -> None:
    """Show the microscope of a step, with a sentence about missing data."""
    view.show(run, feed, step)
    if (samples := files.newest(run.id, "samples", step)) and (said := missing(
            samples, any(knob.key == "advantage" for knob in run.spec.row.knobs))):
        st.caption(f":material/info: {said}")


TABS: Tabs = {"Microscope": (microscope, has_completions), judge_tab.NAME: (judge_tab.show, has_groups)}


def page() -> None:
    """Show the whole page."""
    run = session.open_run(WATCH.key)
    bar.bar(run, WATCH.key)
    session.problem()
    export.dialog(run)
    if run is None:
        teach.show()
        return
    st.session_state.pop(teach.NEWEST, None)
    left, right = st.columns([1, 3.7], gap="medium")
    with left, st.container(key="side"):
        beside.show(run)
    with right:
        live.panel(run, _picture, TABS, None)


def _picture(run: RunRow, feed: Feed, step: int) -> None:
    """Show the story strip if the run has completions; before the first step, a note on what will appear."""
    if has_completions(run):
        story.show(run, feed, step)
    elif not feed.steps:
        st.caption("Curves appear with the first metrics, completions with the first rollouts.")
