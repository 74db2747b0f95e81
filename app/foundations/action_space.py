"""Effective action space: how few tokens a policy really chooses among."""

from __future__ import annotations

import streamlit as st

from app.components.foundations import ACTION_SPACE
from app.foundations.section import Return, Section
from app.llm.action_tab import NAME
from app.playground.models import able
from app.tokens import literal
from labcore.runs.titles import title

RECENT = 3  # runs to open
PAGE = "../pages/llm.py"


def own() -> None:
    """The same of the reader's own checkpoints: a tab of every language-model run."""
    runs = able()[:RECENT]
    with st.container(border=True, gap="xsmall", key="own_action_space"):
        st.markdown("**For your own checkpoints**")
        if not runs:
            st.caption("No language model has been trained here yet. Start a run: its tab Action space samples "
                       "completions and measures this for its base and for each checkpoint.")
            st.page_link(PAGE, label="Open the LLM lab", icon=":material/arrow_forward:")
        for run in runs:
            st.page_link(PAGE, label=literal(f"Action space of {title(run)}"), icon=":material/arrow_forward:",
                         query_params={"run": run.id, "tab": NAME})


SECTION = Section(
    key="action_space",
    title="Effective action space",
    sentence="A language model can choose among all tokens of its vocabulary, but after training nearly all "
             "probability is on a few of them, so it searches a space that is far smaller than it looks.",
    latex=r"m_k(s) = \sum_{i=1}^{k} \pi_{(i)}(s), \qquad \pi_{(1)}(s)\ge\pi_{(2)}(s)\ge\ldots",
    symbols=(
        (r"\pi_{(i)}(s)", "the probability of the $i$-th likeliest token in state $s$: the tokens sorted, the "
                          "likeliest first."),
        (r"m_k(s)", "the mass of the top $k$: the total probability of the $k$ likeliest tokens, at most 1."),
        (r"\alpha\ \text{(sharpness)}", "in this picture the $i$-th likeliest token gets a probability proportional to "
         "$1/i^{\\,\\alpha}$: 0 makes all equal, larger is sharper. A real model has a "
         "distribution of its own at each position."),
        (r"e^{H}", "with the entropy $H$ of section 1: how many equally likely tokens would be as uncertain. Of a "
                   "whole completion: $e$ to the sum of the entropies, where positions do not depend on each other."),
    ),
    tries=(
        "Press **All tokens alike**: the top 16 hold $16/n$ of $n$ tokens, and sampling could write anything.",
        "Drag the sharpness of position 1 alone: the first token decides most, as in many trained models.",
        "Make the vocabulary larger: where the choice is sharp, nothing changes.",
    ),
    returns=(
        Return("Entropy falls while a policy learns", "llm", {"algorithm": "grpo"}),
        Return("Top tokens at each position, in the Playground", "playground"),
    ),
    picture=ACTION_SPACE,
    below=own,
)
