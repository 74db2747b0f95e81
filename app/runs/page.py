"""The page Runs: one table of all runs, with search, filters and groups above it, and actions on the selected runs."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import naming
from app.components.recorded_clip import recorded_clip
from app.lab import errors_shown, in_words, lab
from app.runs import actions, dialogs, state, table
from app.session import page_of
from app.tokens import literal
from app.widget_state import widget_state
from labcore.catalog.kinds import EVERY
from labcore.errors import LabError
from labcore.runs.files.paths import read_only
from labcore.runs.lists.all_runs import complete
from labcore.runs.lists.entries import FIELDS, ORDERS, TEXTS, Entry, grouped
from labcore.runs.lists.marks import purge

ENTRIES = "runs:entries"
SUMMARY_SECONDS = 0.25  # what a refresh may spend on runs that nobody has looked at yet
OPEN_GROUPS = 3
HELP = """Words match titles, ids, projects, tags and notes: `grpo sort`, `#3`.\\
Fields and knobs can be compared: `beta=0.1` `β>0.05` `seed!=0` `best>0.9` `size>10` (MB) `age<7` (days) `tag=paper`
`project=Studies`.\\
A minus negates a term: `-failed`. All terms must match. Knobs have their values at the start of the run."""


def page() -> None:
    """The whole page, in one fragment that polls while a run is running or rows are still being read."""
    try:
        purge(lab().store)
    except LabError as error:  # a full disk, say: the list must still open
        state.said(str(error), error=True)
    st.session_state.pop(state.SHOWN, None)
    _read(anew=True)
    polling = _unsettled()
    st.fragment(_page, run_every=1.0 if polling else None, key="runs")(polling)


def _read(anew: bool) -> None:
    """Read the list: all of it if it may have changed, otherwise only the running runs."""
    kept, now = st.session_state, state.view()
    before: list[Entry] | None = kept.get(ENTRIES)
    if kept.pop(state.STALE, False) or anew or before is None or not complete(before) or now.deleted:
        kept[ENTRIES] = (state.shelf().trashed if now.deleted else state.shelf().entries)(SUMMARY_SECONDS)
    else:
        kept[ENTRIES] = state.shelf().refreshed(before, SUMMARY_SECONDS)


def _unsettled() -> bool:
    entries = st.session_state[ENTRIES]
    return any(entry.active for entry in entries) or not complete(entries)


@errors_shown()
def _page(polling: bool) -> None:
    _read(anew=False)
    if run_id := st.session_state.pop("runs:open", None):
        _open(run_id)
    if polling != _unsettled():
        st.rerun()
    entries, now = st.session_state[ENTRIES], state.view()
    _top(entries, now)
    if wrong := state.left_out():
        st.warning(literal(f"The link says {' and '.join(wrong)}, which matches nothing in this list and was ignored."),
                   icon=":material/link_off:")
    if not entries:
        _nothing(now)
        return
    try:
        found = state.steady(state.chosen(entries, now), now)
    except LabError as error:
        st.warning(in_words(error), icon=":material/search_off:")
        found = []
    there = {entry.id for entry in found}
    state.pick([run_id for run_id in state.picked() if run_id in there])
    actions.row(found, entries, now.deleted)
    if not found:
        st.button("Show all runs", icon=":material/filter_list_off:", key="runs:all", on_click=state.show_all)
        return
    _tables(found, now)


def _open(run_id: str) -> None:
    entry = next((entry for entry in st.session_state[ENTRIES] if entry.id == run_id), None)
    if entry is not None and entry.kind in EVERY:
        st.switch_page(page_of(entry.kind), query_params={"run": run_id})
    elif entry is not None:
        st.switch_page("../pages/compare.py", query_params={"runs": run_id})


def _tables(found: Sequence[Entry], now: state.View) -> None:
    """Draw one table, or a table for each group; the later groups are folded."""
    if not now.group or now.group not in state.groups_of(found):
        table.table(found, now.deleted)
        return
    name = FIELDS[now.group].label.lower() if now.group in FIELDS else naming.name(now.group)
    pixels = table.widths(table.frame(found[:table.PAGE], now.deleted), framed=True)  # the same in all groups
    for place, group in enumerate(grouped(found, now.group)):
        folded = st.expander(literal(table.group_title(name, group)), expanded=place < OPEN_GROUPS,
                             key=f"runs:group:{now.group}:{group.value}", on_change="rerun")
        if folded.open:
            with folded:
                table.table(group.entries, now.deleted, pixels, repr(group.value))


def _top(entries: Sequence[Entry], now: state.View) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="runs_top"):
        st.header("Deleted" if now.deleted else "Runs", anchor=False, width="content")
        find = widget_state("runs:find", now.find)
        st.text_input("Search", find.value, key=find.key, type="search", icon=":material/search:", help=HELP,
                      placeholder="Search: grpo beta>0.05 tag=paper", label_visibility="collapsed", width="stretch",
                      on_change=lambda: state.put(find=find.taken().strip()))
        with st.popover(f"Filter · {now.filters}" if now.filters else "Filter", icon=":material/filter_list:"):
            _filters(now)
        with st.popover("View", icon=":material/tune:", help="Groups and order"):
            _arrangement(entries, now)
        if now.deleted:
            if entries and not read_only():
                actions.empty_trash(entries)
            st.button("All runs", icon=":material/arrow_back:", key="runs:back", on_click=_show, args=(False,))
            return
        if not read_only():
            _changes(entries, now)
        if count := len(state.shelf().trashed(seconds=0)):
            st.button(f"Deleted · {count}", icon=":material/delete:", key="runs:deleted", on_click=_show, args=(True,),
                      help="Restore deleted runs, or free their disk space")


def _changes(entries: Sequence[Entry], now: state.View) -> None:
    """Draw the buttons that act on the whole list."""
    if st.button("Import", icon=":material/upload_file:", key="runs:import", help="Another tool's metrics"):
        dialogs.import_files()
    if st.button("Clean up", icon=":material/cleaning_services:", key="runs:clean",
                 help="Free disk space: by age, by number, only files, or uploads"):
        listed = _listed(entries, now)
        dialogs.clean_up(listed, len(listed) == len(entries))


def _listed(entries: Sequence[Entry], now: state.View) -> Sequence[Entry]:
    try:
        return state.chosen(entries, now)
    except LabError:  # the page says why its search finds nothing
        return []


def _show(deleted: bool) -> None:
    state.pick([])
    state.put(deleted=deleted)
    st.session_state[state.STALE] = True


def _filters(now: state.View) -> None:
    states, kinds, star = (widget_state("runs:state", list(now.states)), widget_state("runs:kind", list(now.kinds)),
                           widget_state("runs:star", now.star))
    st.pills("State", state.ALL_STATES, selection_mode="multi", default=states.value, key=states.key,
             format_func=table.NAMES.__getitem__, on_change=lambda: state.put(states=tuple(states.taken())))
    st.pills("Kind", state.ALL_KINDS, selection_mode="multi", default=kinds.value, key=kinds.key,
             format_func=lambda key: EVERY[key].label if key in EVERY else "Imported",
             on_change=lambda: state.put(kinds=tuple(kinds.taken())))
    st.toggle("Only starred runs", star.value, key=star.key, on_change=lambda: state.put(star=star.taken()))


def _arrangement(entries: Sequence[Entry], now: state.View) -> None:
    options = ["", *state.groups_of(entries)]
    group = widget_state("runs:group", now.group if now.group in options else "", of=tuple(options))
    st.selectbox("Group by", options, options.index(group.value), key=group.key, width=260,
                 format_func=lambda key: FIELDS[key].label if key in FIELDS else
                 naming.title(key) if key else "Nothing",
                 on_change=lambda: state.put(group=group.taken()),
                 help="A field or any knob; each group shows its means")
    order = widget_state("runs:order", now.order.removeprefix("-"))
    options = [state.USUAL, *ORDERS]
    st.selectbox("Order by", options, options.index(order.value), key=order.key, width=260,
                 format_func=lambda key: "Running, then newest" if key == state.USUAL else FIELDS[key].label,
                 on_change=lambda: _order_by(order.taken(), now),
                 help="A click on a column header also sorts the table")
    if order.value == state.USUAL:
        return
    turned = widget_state("runs:descending", now.order.startswith("-"))
    st.toggle("Newest first" if order.value == "started" else "Descending", turned.value, key=turned.key,
              on_change=lambda: state.put(order=("-" if turned.taken() else "") + now.order.removeprefix("-")))


def _order_by(key: str, now: state.View) -> None:
    """Order by a field: texts begin with A, all else with the newest or the largest. A direction that was chosen stays
    from one text to another, and from one number to another."""
    before, text = now.order.removeprefix("-"), key in TEXTS
    descending = not text if before == state.USUAL or (before in TEXTS) != text else now.order.startswith("-")
    state.put(order=f"-{key}" if descending and key != state.USUAL else key)


def _nothing(now: state.View) -> None:
    """The page without a run: what to do."""
    if now.deleted:
        st.markdown("The trash is empty. Deleted runs stay here for a week and can be restored.")
        return
    actions.row([], [], False)
    left, right = st.columns([1, 1.5], gap="large")
    with left:
        st.markdown("**No runs yet.** A run trains one model and records its curves, its completions and its "
                    "checkpoints. All of them are listed here: you can search, group, compare, tag and restore them. "
                    "The defaults work for the first one.")
        if st.button("Open the LLM lab", type="primary", icon=":material/play_arrow:", key="runs:first"):
            st.switch_page("../pages/llm.py")
        st.page_link("../pages/maze.py", label="Start in a maze", icon=":material/grid_on:")
        st.page_link("../pages/cartpole.py", label="Balance a pole", icon=":material/sports_martial_arts:")
    with right:
        recorded_clip(key="runs:clip")
