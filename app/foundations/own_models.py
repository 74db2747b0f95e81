"""Foundations on the reader's own models: the next token of any checkpoint, and links to their action spaces."""

from __future__ import annotations

import streamlit as st

from app import jobs, link
from app.components.foundations import NEXT_TOKEN
from app.lab import in_words
from app.link import Param
from app.llm.action_tab import NAME
from app.playground import models
from app.playground.page import presets
from app.tokens import literal
from app.widget_state import widget_state
from labcore.errors import LabError
from labcore.runs.models import offered
from labcore.runs.spec.model_names import BASE, Model, parse
from labcore.runs.titles import title

RECENT = 3  # runs to open
LAB = "../pages/llm.py"


MODEL, PROMPT = Param("model", "", lambda said: parse(said).name), Param("prompt", "")


@st.fragment
def next_token() -> None:
    """Choose a model and a prompt, and see the bars of its next token."""
    st.markdown("**The same for a language model: its next token after a prompt**")
    try:
        chosen = _asked("Show its next token")
        if chosen is None:
            return
        model, prompt = chosen
        found, _ = jobs.result({"job": "next_token", "model": model, "prompt": prompt},
                               "The model reads the prompt", "foundations:next_token", like=chosen)
    except LabError as error:
        st.error(in_words(error), icon=":material/error:")
        return
    if found is not None:
        NEXT_TOKEN(data=found, key="foundations:next_token")


def action_space() -> None:
    """Links to the action spaces of the newest runs, each a tab of its run."""
    runs = [run for run in models.able() if run.state != "diverged"][:RECENT]
    with st.container(border=True, gap="xsmall", key="own_action_space"):
        st.markdown("**For your own checkpoints**")
        if not runs:
            st.caption("No language model has been trained here yet. Start a run: its tab Action space samples "
                       "completions and measures the action space of its base and of each checkpoint.")
            st.page_link(LAB, label="Open the LLM lab", icon=":material/arrow_forward:")
        for run in runs:
            st.page_link(LAB, label=literal(f"Action space of {title(run)}"), icon=":material/arrow_forward:",
                         query_params={"run": run.id, "tab": NAME})


# ---- which model, which prompt ---------------------------------------------------------------------------------


def _asked(doing: str) -> tuple[str, str] | None:
    """The model by its name and the prompt, once the user has pressed `doing` or followed a link that has them.

    Says so where there is no model yet. Raises LabError where the run of the link is not there.
    """
    runs = models.able()
    if not runs and not link.get(MODEL):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown("There is no trained model yet. The defaults work for a first run.")
            st.page_link(LAB, label="Train one in the LLM lab", icon=":material/arrow_forward:")
        return None
    name = _present(link.get(MODEL) or runs[0].id)
    first = next(iter(presets(parse(name).run)))[0]
    prompt = link.get(PROMPT)
    typed = widget_state("foundations:prompt", prompt or first)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        _run(name, [run.id for run in runs])
        st.text_input("Prompt", typed.value, key=typed.key, width="stretch",
                      on_change=lambda: link.put(PROMPT, typed.taken()))
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        _stage(name)
        if not prompt:
            st.button(doing, type="primary", key="foundations:ask",
                      on_click=lambda: link.put(PROMPT, typed.taken() or first))
    return (name, prompt) if prompt else None


def _present(name: str) -> str:
    """The model of today that a name means: of a run its newest checkpoint, and before its first one its base."""
    model = parse(name)
    if model.stage or model.step is not None:
        return model.name
    return Model(model.run, BASE).name if model.pinned.step == 0 else model.pinned.name


def _run(name: str, ids: list[str]) -> None:
    run = parse(name).run
    ids = ids if run in ids else [*ids, run]
    words = models.to_choose(ids)
    shown = widget_state("foundations:run", run, tuple(words.items()))
    st.selectbox("Run", ids, ids.index(run), key=shown.key, width=260, format_func=words.__getitem__,
                 on_change=lambda: link.put(MODEL, shown.taken()))


def _stage(name: str) -> None:
    """A slider from the untrained model to the newest checkpoint."""
    stages = [each.name for each in offered(parse(name).run)]
    if name not in stages:
        raise LabError(f"The run {parse(name).run} no longer has the model {name}. Choose another run.")
    shown = widget_state("foundations:stage", name, tuple(stages))
    if len(stages) > 1:
        st.select_slider("Training stage", stages, name, key=shown.key,
                         on_change=lambda: link.put(MODEL, shown.taken()),
                         format_func=lambda stage: models.short(stage, stages[-1]))
