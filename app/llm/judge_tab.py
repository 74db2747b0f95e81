"""The tab Judge again: score a run's stored completions with another verifier or reward function."""

from __future__ import annotations

import os
from typing import Any

import streamlit as st

from app import jobs, link, theme
from app.components.figure_chart import figure_chart
from app.lab import active
from app.link import Param
from app.llm import chain
from app.llm import judge_figures as figures
from app.on_request import requested
from app.session import runs_of
from app.tokens import literal
from app.training.feed import Feed
from app.widget_state import widget_state
from labcore.analysis import judge_again
from labcore.analysis.judge_again import JOB, JUDGE, KNOBS, TASK
from labcore.catalog.llm.tasks import VERIFIERS
from labcore.errors import LabError
from labcore.runs.files import step_files
from labcore.runs.spec import judge_address
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title as title_of
from labcore.tasks import own_reward

NAME = "Judge again"
BY, PATTERN, MODEL = Param("judged_by", ""), Param("judged_pattern", ""), Param("judged_model", "")
LENGTHS = tuple(Param(f"judged_{key}", KNOBS[key], link.whole(0)) for key in ("length_low", "length_high"))
MEANS = ("Score this run's stored completions with another verifier or reward. If the reward rises while the "
         "other score does not, the completions may exploit the reward.")
PATTERNS = {"regex": "Regular expression", "contains": "Text (empty: the answer)", "format": "Template, … for any text"}
SHOWN = 12  # completions in the table


def fits(run: RunRow) -> bool:
    """True if a run samples completions and rewards them."""
    return run.spec.row.loop == "online" and bool(run.spec.knobs.get("probes", True))


def show(run: RunRow, feed: Feed, step: int) -> None:
    """Choose a judge; show its scores and the reward over the steps, and the completions on which they differ most."""
    st.caption(MEANS)
    steps = step_files.steps_of(run.id, "samples")
    if not steps:
        st.caption("No completions yet. They appear with the first samples.")
        return
    by, knobs = _judge(run)
    spec = judge_again.spec_for(run.id, by, knobs)
    found = judge_again.kept_as(spec) or _computed(run, spec, len(steps))
    if found is not None:
        _show(run, found, step if step < feed.last_step else None)
    _earlier(run, found)


def _computed(run: RunRow, spec: dict[str, Any], steps: int) -> dict[str, Any] | None:
    cost = (f"Scores up to about {judge_again.MOST:,} completions of {steps:,} stored steps and saves the result with "
            "the run.")
    asked = requested(JOB, (run.id, spec["by"], tuple(spec["knobs"].items())), spec, cost)
    if asked is None:
        return None
    return jobs.result(asked, f"{judge_again.name_of(asked['by'])} scores the stored completions", JOB,
                       (run.id, asked), (run.id, asked["by"]), polled=active(run))[0]


def _judge(run: RunRow) -> tuple[str, dict[str, Any]]:
    """Show the widgets that choose a judge and its settings."""
    options = offered(run)
    said = link.get(BY)
    chosen = widget_state(f"judged_by:{run.id}", said if said in options else next(iter(options)), of=tuple(options))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="judge_again"):
        st.selectbox("Judge", list(options), list(options).index(chosen.value), format_func=options.__getitem__,
                     key=chosen.key, on_change=lambda: link.put(BY, chosen.taken()), width=320)
        return chosen.value, _settings(chosen.value)


def _settings(by: str) -> dict[str, Any]:
    if by in PATTERNS:
        return {"pattern": _text(PATTERN, PATTERNS[by])}
    if by == "length":
        return {each.key.removeprefix("judged_"): _whole(each, label)
                for each, label in zip(LENGTHS, ("Shortest", "Longest"), strict=True)}
    if by == JUDGE:
        return {"judge_url": judge_address.address(os.environ[judge_address.URL]),
                "judge_model": _text(MODEL, "The judge's model")}
    return {}


def _text(param: Param[str], label: str) -> str:
    shown = widget_state(param.key, link.get(param))
    st.text_input(label, shown.value, key=shown.key, on_change=lambda: link.put(param, shown.taken()), width=320)
    return str(shown.value)


def _whole(param: Param[int], label: str) -> int:
    shown = widget_state(param.key, link.get(param))
    st.number_input(label, 0, None, shown.value, key=shown.key, on_change=lambda: link.put(param, shown.taken()),
                    width=140)
    return int(shown.value)


def offered(run: RunRow) -> dict[str, str]:
    """Return the judges that a page may use, with labels. Code is limited to files in the lab's folder."""
    own = {key: f"Your function {judge_again.name_of(key)}" for key in own_reward.offered() if " " in key}
    models = {each.id: f"Reward model {title_of(each)}" for each in runs_of("llm", "finished")
              if chain.stage(each.spec) == chain.REWARD_MODEL}
    has_task = run.spec.task_row.source and run.spec.task_row.verifiable
    task = {TASK: "The task's verifier"} if has_task else {}
    judge = {JUDGE: "The judge of RL_LAB_JUDGE_URL"} if _has_judge() else {}
    return {**task, **{key: f"Verifier {key}" for key in VERIFIERS}, **own, **models, **judge}


def _has_judge() -> bool:
    try:
        return bool(judge_address.address(os.environ.get(judge_address.URL, "")))
    except LabError:
        return False


def _show(run: RunRow, found: dict[str, Any], at: int | None) -> None:
    icon = {"exploits": ":orange[:material/warning:] ", "both": ":green[:material/check_circle:] "}
    st.markdown(icon.get(found["verdict"], "") + _markdown(found["sentence"]))
    figure_chart(figures.over_steps(found, at, theme.ground()), "judged", title="Reward and second score",
                 caption=title_of(run), alt=found["sentence"])
    st.caption(literal(judge_again.about(found)))
    if found["apart"]:
        st.markdown("**Completions on which the two scores differ most**")
        st.html(figures.table(found, SHOWN))


def _markdown(sentence: str) -> str:
    """Return a sentence with names in backticks as code and everything else escaped."""
    parts = sentence.split("`")
    return "".join(f"`{part}`" if place % 2 else literal(part).replace("\N{NO-BREAK SPACE}", " ")
                   for place, part in enumerate(parts))


def _earlier(run: RunRow, shown: dict[str, Any] | None) -> None:
    """Show the sentences of the run's other judgements."""
    others = [found for _, found in judge_again.kept(run.id) if found != shown and "sentence" in found]
    if others:
        with st.expander(f"{len(others)} other judgement{'s' if len(others) > 1 else ''} of this run"):
            for found in others:
                st.markdown(f"* {_markdown(found['sentence'])}")
