"""Count the next updates of a live chart that send all of its rows instead of only the new ones.

A browser that is slower than the updates skips some of them, perhaps the one that had all rows. It then asks again, and
each time twice as many updates send all rows, so that it soon receives one of them.
"""

from __future__ import annotations

import streamlit as st

MOST = 32  # drawings


def mounted(chart: str) -> None:
    """Note that the chart may be new in the browser, so that its next drawing sends all rows."""
    st.session_state[f"{chart}:full"] = max(1, st.session_state.get(f"{chart}:full", 0))


def missed(chart: str) -> None:
    """Note that the browser lacks rows."""
    times = st.session_state[f"{chart}:missed"] = min(MOST, 2 * st.session_state.get(f"{chart}:missed", 1))
    st.session_state[f"{chart}:full"] = times


def full(chart: str) -> bool:
    """True if this drawing sends all rows."""
    left: int = st.session_state.get(f"{chart}:full", 0)
    st.session_state[f"{chart}:full"] = max(0, left - 1)
    return left > 0
