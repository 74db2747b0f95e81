"""The state of a browser tab, and its place in the URL: the open run and how the page shows runs."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from app import link
from app.lab import in_words, lab
from app.link import Param
from labcore.catalog import kinds
from labcore.errors import cut
from labcore.runs.store.rows import ACTIVE, RunRow

SMOOTHEST = 0.99
RUN = Param("run", "")
X, SMOOTH = Param("x", ""), Param("smooth", 0.0, link.number(0, SMOOTHEST))
# How runs are looked at, kept from run to run: the view, the charts' axis and smoothing, the open tab, the maze's
# board, and whether pairs are labelled.
KEPT = ("view", "x", "smooth", "tab", "heat", "arrows", "path", "label")
RECENT = 40  # runs to choose from
PROBLEM = "problem"


def page_of(kind: str) -> str:
    """The page that shows runs of a kind."""
    return f"../pages/{kind}.py"


def missing(run_id: str) -> str:
    """The sentence for a link to a run that does not exist."""
    return (f"There is no run “{cut(run_id)}” here. It was deleted (the page Runs can restore it for a week), or the "
            f"link is from another lab.")


def open_run(kind: str) -> RunRow | None:
    """Return the run of the URL; otherwise the run that this tab had open; otherwise, in a new tab, the user's newest
    live run, or the newest watched run.

    Only runs of `kind`: the link of another one leads to its own page.
    """
    state, key = st.session_state, f"open_run:{kind}"
    said = link.query()
    if (run_id := said.get(RUN.key)) is not None:
        run = lab().find(run_id)
        if run is None:
            state[PROBLEM] = missing(run_id)
            close_run(kind)
        elif run.spec.kind != kind:
            st.switch_page(page_of(run.spec.kind), query_params={"run": run.id})
        else:
            state[key] = run.id
        return run
    if key not in state:
        wanted = () if kinds.kind(kind).elsewhere else ACTIVE
        newest = [] if said else lab().store.runs(*wanted, limit=1, kind=kind, own=True)
        state[key] = newest[0].id if newest else None
    run = lab().find(state[key])
    if run:
        link.replace_all({RUN.key: run.id, **view()})
    return run


def runs_of(kind: str, *states: str, beside: RunRow | None = None, of_sweep: int = 0) -> list[RunRow]:
    """Return the user's newest runs of a kind, without runs of lessons and studies and with at most `of_sweep` runs of
    each sweep. If the open run `beside` belongs to one of these, the other runs of its sweep are included."""
    sweep = lab().store.sweep_runs(beside.sweep)[::-1] if beside and beside.sweep else []
    same = [each for each in sweep if each.spec.kind == kind and (not states or each.state in states)][:RECENT]
    there = {each.id for each in same}
    own = lab().store.runs(*states, limit=RECENT, kind=kind, apart=False, of_sweep=of_sweep)
    return [*same, *(each for each in own if each.id not in there)][:RECENT]


def show_run(run_id: str, kind: str) -> None:
    """Open a run and put it into the URL, in place of the draft."""
    st.session_state[f"open_run:{kind}"] = run_id
    link.go({RUN.key: run_id, **view()})


def close_run(kind: str) -> None:
    """Go back to an empty page with the draft."""
    st.session_state[f"open_run:{kind}"] = None
    link.go(view())


def forget(run_id: str) -> None:
    """Close the run if this tab has it open, because it no longer exists."""
    for kind in kinds.EVERY:
        if st.session_state.get(f"open_run:{kind}") == run_id:
            st.session_state[f"open_run:{kind}"] = None


def view() -> dict[str, str]:
    """The link parameters that set how a run is shown."""
    return {key: said for key, said in link.query().items() if key in KEPT and said}


def axis(axes: Mapping[str, str]) -> str:
    """The horizontal axis of the charts, from the link; the first of `axes` where it names none of them."""
    chosen = link.get(X)
    return chosen if chosen in axes else next(iter(axes))


def show_error(sentence: str) -> None:
    """Show this error on top of the page at the next run of the script."""
    st.session_state[PROBLEM] = sentence


def problem() -> None:
    """Show the stored error and forget it."""
    if sentence := st.session_state.pop(PROBLEM, None):
        st.error(in_words(sentence), icon=":material/error:")
