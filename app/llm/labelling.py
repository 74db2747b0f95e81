"""You are the labeller: two sampled completions side by side, one click each, and a reward model on the labels.

Every label is on the disk before the next pair is shown. Which pair is shown is kept in the session; which model the
pairs come from follows the open run.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from app import jobs, link
from app.lab import active, in_words, lab
from app.link import Param
from app.llm import chain
from app.marked import worded
from app.session import show_error, show_run
from app.tokens import readable
from labcore.errors import LabError
from labcore.runs.spec.model_names import parse
from labcore.runs.spec.run_spec import RunSpec, base_spec, knobs_of
from labcore.runs.store.rows import RunRow
from labcore.tasks import labels

OPEN = Param("label", False, link.switch)
STATE = "labelling"
MOVED = "rail:moved"  # another run was opened, or something is to be said: the page must be drawn anew
AT_ONCE = 32  # pairs that are sampled together
ENOUGH = 10  # labels from which on it is said how often they agree with gold
CSS = """<style>
.rl-choices{display:grid;grid-template-columns:1fr 1fr;gap:8px 16px}
@media (max-width:640px){.rl-choices{grid-template-columns:1fr}}
.rl-choice{border:1px solid color-mix(in srgb,currentColor 18%,transparent);border-radius:10px;padding:9px 14px;
  min-height:48px;font-size:17px;line-height:1.5}
.rl-choice b{opacity:.72;margin-right:.7rem}
.rl-choice code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:none;color:inherit;
  padding:0;overflow-wrap:anywhere;white-space:pre-wrap}
</style>"""


def open_() -> None:
    """Show the labeller on top of the page; called from further below."""
    link.put(OPEN, True)
    st.toast("Pairs of this policy are shown at the top of the page.", icon=":material/thumbs_up_down:")


def close() -> None:
    """Go back to the page without it."""
    link.put(OPEN, False)


def show(run: RunRow | None, spec: RunSpec) -> None:
    """The pair to label, the number of labels, and the buttons for them."""
    with st.container(border=True, key="labelling"):
        try:
            asked = _asked(run, spec)
        except LabError as error:
            st.info(in_words(error), icon=":material/info:")
            st.button("Close", key="label:close", on_click=close)
            return
        found, fresh = jobs.result(asked, "Pairs are sampled", "labels", polled=active(run))
        there = labels.rows(spec)
        if fresh and found:
            _pair(spec, found, there)
        _below(spec, there, run is not None and chain.stage(run.spec) == chain.RL)


def _asked(run: RunRow | None, spec: RunSpec) -> dict[str, Any]:
    """The job of the pairs: by the policy of the RL run that is open, else by the base. Its seed counts the rounds.
    Raises LabError if the run has no checkpoint yet, or the task makes no reward model."""
    of = run.id if run and chain.stage(run.spec) == chain.RL else labels.name(spec)
    state = st.session_state.get(STATE)
    if state is None or state["of"] != of:
        source = ({"model": parse(run.id).pinned.name} if run and of == run.id
                  else {"spec": chain.reward_model_spec(spec).to_json()})
        state = {"of": of, "source": source, "seed": 1 + len(labels.rows(spec)), "place": 0}
        st.session_state[STATE] = state
    return {"job": "pairs_to_label", **state["source"], "count": AT_ONCE, "seed": state["seed"]}


def _pair(spec: RunSpec, found: dict[str, Any], there: Sequence[dict[str, Any]]) -> None:
    state, pairs = st.session_state[STATE], found["pairs"]
    pair, where = pairs[state["place"] % len(pairs)], (state["seed"], state["place"])
    st.html(f'{CSS}<div class="rl-status"><b>Which is better?</b> <span class="rl-muted">Prompt</span> '
            f'<code class="rl-mono">{readable(pair["prompt"])}</code> <span class="rl-muted">Pair {state["place"] + 1} '
            f"of {len(pairs)}, {html.escape(_source(found['model'], spec))}</span></div>")
    st.html(f'<div class="rl-choices">{"".join(_card(pair, side) for side in labels.PICKS)}</div>')
    first, second = st.columns(2, gap="medium", wrap=False)
    first.button("A is better", key="label:a", shortcut="1", width="stretch", on_click=_choose,
                 args=(spec, pair, "a", where, len(pairs)))
    second.button("B is better", key="label:b", shortcut="2", width="stretch", on_click=_choose,
                  args=(spec, pair, "b", where, len(pairs)))


def _card(pair: dict[str, Any], side: str) -> str:
    cut = ' <span class="rl-muted">(cut)</span>' if pair[f"{side}_truncated"] else ""
    return f'<div class="rl-choice"><b>{side.upper()}</b><code>{readable(pair[side])}</code>{cut}</div>'


def _source(model: str, spec: RunSpec) -> str:
    """Who wrote the pairs, by the job's `model`."""
    if not model:
        return "from the task"
    sft = base_spec(spec)
    return f"sampled from {'the SFT base' if sft and sft.hash() == model else model}"


def _choose(spec: RunSpec, pair: dict[str, Any], pick: str | None, where: tuple[int, int], count: int) -> None:
    """Keep the label and go on; a key that is hit twice before the page is drawn again counts once."""
    state = st.session_state[STATE]
    if (state["seed"], state["place"]) != where:
        return
    if pick:
        try:
            labels.add(spec, pair, pick)
        except LabError as error:
            show_error(str(error))
            st.session_state[MOVED] = True
            return
    state["place"] += 1
    if state["place"] >= count:
        state.update(place=0, seed=state["seed"] + 1)


def _below(spec: RunSpec, there: Sequence[dict[str, Any]], fresh: bool) -> None:
    """Skip, train, close; and from some labels on how often they agree with the hidden gold score."""
    count, state = len(there), st.session_state[STATE]
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="label_buttons"):
        st.button("Skip", key="label:skip", icon=":material/skip_next:", shortcut="0", on_click=_choose,
                  args=(spec, {}, None, (state["seed"], state["place"]), AT_ONCE))
        many = f"my {count} label{'s' if count > 1 else ''}" if count else "my labels"
        st.button(f"Train the reward model on {many}", key="label:train", disabled=not count,
                  type="primary" if count else "secondary",
                  icon=":material/play_arrow:", on_click=_train, args=(spec, there, fresh),
                  help="Half of each batch; the other half are the task's own pairs" if fresh else "Only on these")
        st.button("Close", key="label:close", on_click=close)
        st.html(f'<div class="rl-status rl-muted">{words(spec, there)}</div>', width="stretch")


def words(spec: RunSpec, there: Sequence[dict[str, Any]]) -> str:
    """The number of labels so far, and how often they agree with the gold score."""
    if len(there) < ENOUGH:
        return f"{len(there)} labelled. Each label is saved at once."
    agreed = agreement(spec, there)
    if agreed is None:
        return f"{len(there)} labelled."
    same, of = agreed
    ties = f" The others are ties: {len(there) - of}." if of < len(there) else ""
    return f"You and the hidden gold score agree on {same} of {of}.{ties}"


def agreement(spec: RunSpec, there: Sequence[dict[str, Any]]) -> tuple[int, int] | None:
    """The number of labels that agree with the gold score, and the number of pairs in which the gold score prefers a
    side; None without a gold score."""
    if not spec.task_row.verifiable:
        return None
    exact = replace(spec, knobs={**spec.knobs, "label_temperature": 0.0})
    gold = labels.by_gold(exact, there, 0)
    decided = [(row["pick"], best) for row, best in zip(there, gold, strict=True) if best]
    return sum(pick == best for pick, best in decided), len(decided)


def _train(spec: RunSpec, there: Sequence[dict[str, Any]], fresh: bool) -> None:
    """Start the reward model and open it; a fault is one sentence on the page."""
    try:
        kept = labels.keep(labels.preferences(there, [row["pick"] for row in there]))
        opened = lab().launcher.start(chain.reward_model_spec(spec, labelled_pairs=kept,
                                                              labelled_share=0.5 if fresh else 1.0))
    except LabError as error:
        show_error(worded(str(error), knobs_of(spec.row, spec.task_row)))
    else:
        close()
        show_run(opened, spec.kind)
    st.session_state[MOVED] = True
