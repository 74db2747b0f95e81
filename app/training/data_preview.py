"""Show before a run how the chosen model will read the prompts, and statistics of the user's file in tokens. A job
reads the data; the page shows its findings, with buttons that fix them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import streamlit as st

from app import jobs
from app.draft import Draft
from app.training import preview_html
from app.training.data_words import Finding, Proposal
from labcore.catalog.llm.knobs import PROMPT
from labcore.catalog.llm.models import MODELS
from labcore.runs.spec.run_spec import RunSpec
from labcore.tasks import preview

DOING = "Rendering and tokenising the prompts"
PROPOSALS = {
    "template off": (Proposal("Use the model's template", (("template", "auto"),)),),
    "no template": (Proposal("Use ChatML", (("template", "chatml"),)),),
    "unusable": (Proposal("Leave out these rows", (("unusable_rows", "skip"),)),),
    "long": (Proposal("Leave out long prompts", (("long_prompts", "skip"),)),
             Proposal("Cut their beginning", (("long_prompts", "cut"),))),
}


def fits(draft: Draft) -> bool:
    """True if prompts of the draft's runs are rendered: by a model that brings a tokenizer, or from the user's file."""
    rendered = any(knob.key == PROMPT[0].key for knob in draft.row.knobs)
    return rendered and (draft.fields["model"] not in MODELS or draft.task_row.data in ("prompts", "preferences"))


def follows(draft: Draft) -> dict[str, Any]:
    """The values on which the shown prompts depend; empty if none are shown."""
    keys = {"max_new_tokens", *(knob.key for knob in PROMPT)} if fits(draft) else ()
    values = draft.values
    return {key: values[key] for key in keys if key in values}


def read(spec: RunSpec) -> dict[str, Any] | None:
    """Show the result of the job; before it is ready its progress, or a button that starts it."""
    asked = preview.asked(spec)
    if not (at_once(spec.model) or st.session_state.get(preview.JOB) == asked):
        st.button("Show the prompts as this model reads them", icon=":material/visibility:", key="preview_now",
                  on_click=st.session_state.__setitem__, args=(preview.JOB, asked))
        return None
    result, _ = jobs.result(asked, DOING, preview.JOB, like=(spec.data, spec.model))
    return result


def at_once(model: str) -> bool:
    """True if the model's tokenizer is on this machine, so that nothing has to be downloaded."""
    return model in MODELS or Path(os.path.expanduser(model)).is_dir()


def findings(result: dict[str, Any], spec: RunSpec) -> list[Finding]:
    """Show the warnings about the data, each with its buttons."""
    return [Finding(said.level, said.text, PROPOSALS.get(said.about, ()) if said.level == preview.WARNING else ())
            for said in preview.findings(result, spec)]


def rows(result: dict[str, Any], own: bool) -> None:
    """The first rows, folded where they are the task's own examples."""
    count = len(result["shown"])
    title = f"The first {count} rows" if own else f"{count} prompts"
    with st.expander(f"{title} as the model reads them", expanded=own, key="preview_rows"):
        st.html(preview_html.page(result))
