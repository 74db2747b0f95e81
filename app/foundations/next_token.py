"""The entropy of a language model's next token: any checkpoint of the lab, at a prompt."""

from __future__ import annotations

import streamlit as st

from app import jobs
from app.components.foundations import NEXT_TOKEN
from app.foundations.model_choice import asked
from app.tokens import literal
from labcore.errors import LabError


@st.fragment
def next_token() -> None:
    """Which model, which prompt, and the bars of its next token once they are asked for."""
    st.markdown("**The same for a language model: its next token after a prompt**")
    try:
        chosen = asked("Show its next token")
        if chosen is None:
            return
        model, prompt = chosen
        found, _ = jobs.result({"job": "next_token", "model": model, "prompt": prompt},
                               "The model reads the prompt", "foundations:next_token", like=chosen)
    except LabError as error:
        st.error(literal(str(error)), icon=":material/error:")
        return
    if found is not None:
        NEXT_TOKEN(data=found, key="foundations:next_token")
