"""The link from a run to the surrogate explorer."""

from __future__ import annotations

import streamlit as st

from app.surrogate.place import PAGE
from labcore.runs.store.rows import RunRow


def link_to(run: RunRow, step: int) -> None:
    """A link that opens the explorer with the tokens that the run has at `step`, and its ε and β there."""
    st.page_link(PAGE, label="Open in the surrogate explorer", icon=":material/open_in_full:",
                 query_params={"run": run.id, "at": str(step)},
                 help="These tokens on curves that you can drag: the clip range, β, the advantage, other surrogates")
