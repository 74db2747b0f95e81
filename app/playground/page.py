"""The Playground: up to three models answer the same prompt with the same random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from app import jobs, link, number_boxes, session
from app.chat_text import in_one_line
from app.components.playground_view import payload, playground_view
from app.components.recorded_clip import recorded_clip
from app.lab import in_words
from app.playground import best, conversation, models, play, vote
from app.playground.models import titles
from app.playground.place import ANSWERS, BEST, MOST_ANSWERS, MOST_RANKED, VOTE, Place, go, now
from app.tokens import literal
from app.widget_state import widget_state
from labcore.catalog.knob import Knob
from labcore.catalog.llm.knobs import MAX_NEW_TOKENS, TEMPERATURE, TOP_K, TOP_P
from labcore.catalog.right import check
from labcore.errors import LabError
from labcore.runs.models import chats, spec_of
from labcore.runs.spec.checks import WHOLE
from labcore.runs.spec.model_names import parse
from labcore.runs.spec.run_spec import RunSpec
from labcore.tasks.task import Problem, make_task

PRESETS = 6
CSS = """
<style>
.rl-letter{display:inline-flex;align-items:center;justify-content:center;width:21px;height:21px;border-radius:6px;
  font-weight:700;font-size:13px;margin-right:6px;flex:none}
.st-key-slot_0,.st-key-slot_1,.st-key-slot_2{flex-wrap:nowrap}
.st-key-playground_prompt .stElementContainer{min-width:0}
.stMainBlockContainer div:has(>.st-key-side){top:3.9rem} /* no bar stands above */
@media (max-width:640px){.stHorizontalBlock:has(>.stColumn .st-key-side){row-gap:0}}</style>"""


def page() -> None:
    """The whole page."""
    place, faults = link.read(Place)
    session.problem()
    for fault in faults:
        st.warning(literal(fault.sentence), icon=":material/error:")
    place, runs = models.fitting(place), models.able()
    if not runs:
        _empty()
        return
    if not place.models:
        place = replace(place, models=models.usual(runs))
        go(models=place.models)  # tomorrow another run is the newest
    st.html(CSS)
    st.checkbox("Show the models and the sampling", key="show_knobs", on_change="ignore")  # seen on a phone only
    left, right = st.columns([1, 3.7], gap="medium")
    try:
        with left, st.container(key="side"), st.container(key="knobs"):
            models.pick(place, runs)
            _sampling(place)
        with right:
            _right(place)
    except LabError as error:
        st.error(in_words(error), icon=":material/error:")


def _empty() -> None:
    left, right = st.columns([1, 1.5], gap="large")
    with left:
        st.header("Playground", anchor=False)
        st.markdown("Up to three models answer the same prompt here, such as the base of a run, its newest checkpoint "
                    "and another run. You see token by token where they differ, and can vote blindly.")
        st.markdown("There is no trained model yet. The defaults work for a first run.")
        if st.button("Train one in the LLM lab", type="primary", icon=":material/play_arrow:"):
            st.switch_page("../pages/llm.py")
    with right:
        recorded_clip(key="playground:clip")


def _right(place: Place) -> None:
    spec = spec_of(parse(place.models[0]).run)
    settings = {"temperature": place.temperature, "top_k": place.top_k, "top_p": place.top_p,
                "max_new_tokens": place.limit or int(spec.knobs["max_new_tokens"])}
    voting = place.view == VOTE
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="playground_top"):
        shown = widget_state("playground:view", place.view)
        st.segmented_control("View", [ANSWERS, VOTE, BEST], default=shown.value, key=shown.key, required=True,
                             format_func={ANSWERS: "Answers", VOTE: "Blind vote", BEST: "Best of n"}.__getitem__,
                             label_visibility="collapsed", on_change=lambda: go(view=shown.taken()))
        with st.popover("Link", icon=":material/link:", help="This page's address"):
            st.code(link.address(link.written(place)), language=None, wrap_lines=True)
            st.caption("Opens this again, in any browser on this machine.")
        if voting:
            vote.own_prompt(place)
    if voting:
        vote.show(place, settings, _prompt(place, spec, voting) if place.own else None)
    elif place.view == BEST:
        prompt, answer = _prompt(place, spec, voting)
        best.show(place, spec, settings, {"prompt": prompt, "answer": answer, **conversation.asked(
            place, conversation.before(place, talks(parse(place.models[0]).run), prompt))})
    else:
        _answers(place, settings, *_prompt(place, spec, voting))
        if spec.task_row.has_turns:
            play.show(place, spec, settings)


@st.cache_data(show_spinner=False, max_entries=16)
def presets(run: str) -> list[tuple[str, str | None]]:
    """Prompts of the run's task with their answers, always the same; without answers if the task has no verifier."""
    spec = spec_of(run)
    problems = make_task(spec.task_row, spec.knobs, spec.data).problems(PRESETS, np.random.default_rng(0))
    return [(each.prompt, each.answer if spec.task_row.verifiable else None) for each in problems]


@st.cache_resource(show_spinner=False, max_entries=16)
def talks(run: str) -> Mapping[str, Problem]:
    """Return these prompts with the turns before them; empty where the model reads no conversations."""
    spec = spec_of(run)
    problems = make_task(spec.task_row, spec.knobs, spec.data).problems(PRESETS, np.random.default_rng(0))
    return {each.prompt: each for each in reversed(problems)} if chats(run, spec) else {}


def _prompt(place: Place, spec: RunSpec, voting: bool) -> tuple[str, str | None]:
    """Draw prompt and right answer, and return both; by default the task's first prompt."""
    run = parse(place.models[0]).run
    known = dict(presets(run))
    prompt = next(iter(known)) if place.prompt is None else place.prompt
    answer = known.get(prompt) if place.answer is None else place.answer or None
    turns = () if voting else conversation.before(place, talks(run), prompt)
    if not voting and chats(run, spec):
        conversation.show(place, spec, turns)
    typed, right = widget_state("playground:prompt", prompt), widget_state("playground:answer", answer or "")
    box = partial(st.text_area, height=84) if spec.task_row.data else st.text_input  # a file's may have several lines
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="playground_prompt"):
        box("Prompt", typed.value, key=typed.key, width="stretch",
            on_change=lambda: go(prompt=typed.taken(), answer=None, talk=turns or None))
        if spec.task_row.verifiable and not spec.task_row.has_turns:  # the environment judges episodes
            st.text_input("Right answer", right.value, key=right.key, width=170,
                          help="The right answer for the verifier of the run's task "
                               f"(check: {check(spec.task_row, spec.knobs)}). Empty: no verifier.",
                          placeholder="no verifier", on_change=lambda: _judge(right.taken(), prompt, known))
    chosen = widget_state("playground:preset", prompt if prompt in known else None, tuple(known))
    st.pills("Prompts of the task", list(known), default=chosen.value, key=chosen.key, label_visibility="collapsed",
             format_func=lambda text: literal(in_one_line(text, 28)),
             on_change=lambda: go(prompt=chosen.taken() or prompt, answer=None, talk=None))
    return prompt, answer


def _judge(answer: str, drawn: str, known: dict[str, str | None]) -> None:
    """Put the right answer into the link, unless it is the task's own. Empty: there is no verifier."""
    chosen = now().prompt
    prompt = drawn if chosen is None else chosen
    go(prompt=prompt, answer=None if answer == (known.get(prompt) or "") else answer)


def _answers(place: Place, settings: dict[str, Any], prompt: str, answer: str | None) -> None:
    names, run = [parse(name).pinned.name for name in place.models], parse(place.models[0]).run
    spec, turns = spec_of(run), conversation.before(place, talks(run), prompt)
    if not prompt and chats(run, spec):
        st.caption("Write the next turn above.")
        return
    above, below = st.container(), st.container()
    with below:  # so that what is there stays where it is while the next answers are made
        found, fresh = jobs.result({
            "job": "answer", "models": names, "prompt": prompt, "answer": answer, "seed": place.seed,
            "count": place.count, **settings, **conversation.asked(place, turns)},
            f"{len(names)} models answer" if len(names) > 1 else "The model answers", "playground")
    if found is None:
        return
    with above:
        shown = [column["model"] for column in found["columns"]]
        playground_view(payload(found, titles(shown), models.runs_of_models(shown), stale=not fresh) | {
            "check": check(spec.task_row, spec.knobs)}, key="playground_view")
    if fresh and chats(run, spec):
        with above:
            conversation.go_on(prompt, turns, found)
    if fresh:
        below.caption(f"{_drawn(found, place)} Hover over a token, or use Tab and the arrow keys, to see the "
                      f"alternatives that it was sampled over.")


def _drawn(found: dict[str, Any], place: Place) -> str:
    """Return a sentence about how the answers were sampled."""
    if not place.temperature:
        return "Temperature 0: every model takes its likeliest token, so there is only one answer."
    if len(found["columns"]) == 1:
        return f"Sampled with seed {place.seed}: the same seed gives the same answers again."
    if not found["twins"]:
        return ("The vocabularies have different sizes, so the models cannot share their random numbers and part of "
                "the difference is random.")
    return (f"Each row was sampled with the same random numbers for all models (seed {place.seed}), so answers differ "
            f"only because the models differ.")


def _sampling(place: Place) -> None:
    """Draw the controls of sampling. Each writes into the link."""
    warm = widget_state("playground:t", place.temperature)
    st.slider(TEMPERATURE.title, 0.0, max(2.0, place.temperature), float(warm.value), 0.05, key=warm.key, format="%g",
              on_change=lambda: go(temperature=float(warm.taken())),
              help="Higher: more varied, more mistakes. 0: always the likeliest token.")
    if place.view != VOTE:  # which draws its own questions
        left, right = st.columns(2, gap="small", wrap=False)
        with left:
            if place.view == BEST:
                _number("ranked", "Answers", (1, MOST_RANKED), place.ranked)
            else:
                _number("count", "Answers", (1, MOST_ANSWERS), place.count)
        with right:
            _number("seed", "Seed", WHOLE["seed"], place.seed)
    usual = int(spec_of(parse(place.models[0]).run).knobs["max_new_tokens"])
    with st.expander("More sampling"):
        _number("limit", "Length limit, tokens", _bounds(MAX_NEW_TOKENS), place.limit or usual)
        _number("top_k", "Top-k", _bounds(TOP_K), place.top_k, help=TOP_K.help)
        _number("top_p", "Top-p", _bounds(TOP_P), place.top_p, step=0.05, help=TOP_P.help)


def _bounds(knob: Knob) -> tuple[float, float]:
    assert knob.low is not None and knob.high is not None, "a knob of sampling has both"
    return knob.type(knob.low), knob.type(knob.high)


def _number(field: str, words: str, bounds: tuple[float, float], value: float, **more: Any) -> None:
    number_boxes.number("playground", field, words, value, bounds, lambda new: go(**{field: new}), **more)
