"""The line below the knobs about the base model, and the switch that shows its SFT."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import streamlit as st

from app import naming
from app.draft import Draft
from app.lab import lab
from app.status import duration
from app.tokens import literal
from app.widget_state import widget_state
from labcore.catalog.goal import reward_words
from labcore.catalog.llm.models import MODELS
from labcore.runs.files import bases
from labcore.runs.spec.run_spec import RunSpec, base_spec
from labcore.runs.store.rows import RunRow
from labcore.runs.store.store import Store

RECENT = 100  # finished runs among which SFT runs are looked for, to time the next one


def show(draft: Draft, spec: RunSpec) -> None:
    """Show the source of the rewards and of the base of `spec`; if there is a base, also a switch to show its SFT."""
    if rewards := reward_words(spec.knobs):
        st.caption(literal(f"Rewards: {rewards}."))
    sft = base_spec(spec)
    if sft is None:
        st.caption(literal(words(spec, None)))
        return
    name = sft.hash()
    there = bases.there(name)
    trained = draft.fields["warm_up"] or not there
    cost = time_of(lab().store.runs("finished", limit=RECENT, kind=spec.kind), sft) if trained else ""
    st.caption(literal(words(spec, sft, trained, cost, comes_with_lab=bases.shipped(name))))
    if there:
        _switch(draft)


def _switch(draft: Draft) -> None:
    shown = widget_state(f"warm_up:{draft.scope}", draft.fields["warm_up"])

    def changed() -> None:
        draft.fields["warm_up"] = shown.taken()

    st.checkbox("Show the warm-up", shown.value, key=shown.key, on_change=changed,
                help="Show the SFT of the base first, from random weights. RL starts from the saved base.")


def words(spec: RunSpec, sft: RunSpec | None, trained: bool = False, cost: str = "",
          comes_with_lab: bool = False) -> str:
    """The line as a sentence. `sft` makes the base; `trained`: it will, when the run starts, at a known `cost`."""
    model = f"Base model: {naming.model(spec.model)}"
    if spec.kind == "exact" and spec.model in spec.kind_row.models:
        return f"Starts from: {naming.model(spec.model)}, the same first policy for every seed."
    if sft is None:
        return f"{model}, random weights." if spec.model in MODELS else f"{model}, used as it is."
    on = spec.task_row.label.lower() if spec.task_row.data else spec.task
    if trained:
        return f"{model}, trained by SFT on {on} first ({cost})."
    return f"{model}, SFT on {on}; {'comes with the lab' if comes_with_lab else 'kept from an earlier run'}."


def time_of(finished: Iterable[RunRow], sft: RunSpec) -> str:
    """The time that the SFT run `sft` takes, as measured on this machine: by the same run, else by the pace of others.

    Runs of the same task and model have the same pace; where SFT will stop before its last step is not known.
    """
    alike = [run for run in finished if run.seconds > 0 and run.step
             and (run.spec.algorithm, run.spec.task, run.spec.model) == (sft.algorithm, sft.task, sft.model)]
    if same := [run.seconds for run in alike if run.spec == sft]:
        return f"about {duration(median(same))}, measured on this machine"
    if alike:
        longest = sft.steps * median(run.seconds / run.step for run in alike)
        return f"at most {sft.steps} steps, {duration(longest)} at the speed measured on this machine"
    return f"at most {sft.steps} steps"


def waits_for_sft(run: RunRow, store: Store) -> bool:
    """True if a run that has just been started waits for SFT of its base, so that its knobs do not act yet."""
    if run.state not in ("queued", "starting") or run.step or run.spec.parent:
        return False
    sft = base_spec(run.spec)
    if sft is None:
        return False
    shown = any(event.payload.get("warm_up") for event in store.events_after(run.id) if event.kind == "queued")
    return shown or not bases.there(sft.hash())
