"""How many of the next drawings of a live chart send all of its rows, and not only the new ones.

A browser that is slower than the drawings skips some of them, and so may skip the one that had all rows. It asks again
then, and each time twice as many drawings send them, so that it gets one of them soon.
"""

from __future__ import annotations

import streamlit as st

MOST = 32  # drawings


def mounted(chart: str) -> None:
    """The chart may be new in the browser: its next drawing sends all rows."""
    st.session_state[f"{chart}:full"] = max(1, st.session_state.get(f"{chart}:full", 0))


def missed(chart: str) -> None:
    """The browser lacks rows."""
    times = st.session_state[f"{chart}:missed"] = min(MOST, 2 * st.session_state.get(f"{chart}:missed", 1))
    st.session_state[f"{chart}:full"] = times


def full(chart: str) -> bool:
    """True if this drawing sends all rows."""
    left: int = st.session_state.get(f"{chart}:full", 0)
    st.session_state[f"{chart}:full"] = max(0, left - 1)
    return left > 0
