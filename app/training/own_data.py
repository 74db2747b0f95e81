"""The user's own file before a run: its contents, and the chosen model's answers to 16 of its prompts.

The prompts are tried by a job, kept under the file's content, the model and the knobs that count; it starts by itself
where it takes no two seconds. Nothing here keeps a run from being started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from app import jobs
from app.draft import Draft
from app.tokens import literal
from app.training import data_preview, data_words
from app.training.data_words import Finding, Proposal
from labcore.catalog.kinds import task
from labcore.catalog.knob import Value
from labcore.catalog.llm.knobs import PROMPT
from labcore.catalog.llm.tasks import MEASURED
from labcore.errors import LabError
from labcore.runs.files import bases
from labcore.runs.spec.run_spec import RunSpec, base_spec, make
from labcore.tasks.file_statistics import FileStatistics, statistics_of
from labcore.tasks.task import make_task

if TYPE_CHECKING:
    from pandas import DataFrame

PROMPTS = 16
# The longest completions, in tokens, of which 16 take less than 2 s: measured on one core, 0.5 and 1.5 s for 64.
AT_ONCE = {"tiny": 192, "small": 64}
VIEW = "first_answers"
ICONS = {"good": ":green[:material/check_circle:]", "warning": ":orange[:material/warning:]",
         "note": ":blue[:material/info:]"}


def show(draft: Draft) -> None:
    """Show the checks of the file of the draft's task, and how a model reads the prompts; nothing if there is no file,
    or it cannot be used."""
    path = draft.fields["data"].get(draft.task_row.data)
    if not path and not data_preview.fits(draft):
        return
    try:
        spec = draft.spec()
        whole = {**draft.of_task(), "held_out": 0.0, "held_out_file": ""}
        seen = _look(draft.task_row.key, path, whole) if path else None
    except LabError:  # said where the file is uploaded, or above the charts
        return
    with st.container(border=True, key="own_data", gap="small"):
        read = data_preview.read(spec) if data_preview.fits(draft) else None
        for finding in (*(data_words.of_file(seen, spec) if seen else ()),
                        *(data_preview.findings(read, spec) if read else ())):
            _line(draft, finding)
        if read:
            data_preview.rows(read, own=bool(path))
        if path and spec.task_row.verifiable:
            _trial(draft, spec)


@st.cache_resource(show_spinner=False, max_entries=16)
def _look(task_key: str, path: str, knobs: dict[str, Value]) -> FileStatistics | None:
    """`statistics_of` all rows, once for a file: its path holds its content's hash."""
    return statistics_of(make_task(task(task_key), knobs, path))


def _line(draft: Draft, finding: Finding) -> None:
    words = f"{ICONS[finding.level]} {literal(finding.text)}"
    one_line = len(finding.proposals) == 1
    if not one_line:
        st.markdown(words)
    if finding.proposals:
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            if one_line:
                st.markdown(words, width="stretch")
            for proposal in finding.proposals:
                st.button(proposal.label, key=f"propose:{proposal.label}", on_click=take, args=(draft, proposal))


def take(draft: Draft, proposal: Proposal) -> None:
    """Change the draft as proposed."""
    for field in ("model", "algorithm"):
        if chosen := getattr(proposal, field):
            draft.choose(field, chosen)
    draft.values.update(proposal.knobs)


def _trial(draft: Draft, spec: RunSpec) -> None:
    """The model's answers; before they are ready the progress, or a button that starts the model."""
    asked = asked_of(spec)
    if not (at_once(spec) or st.session_state.get("try_prompts") == asked):
        st.button(f"Try {PROMPTS} prompts on this model", icon=":material/quiz:", key="try_prompts_now",
                  on_click=st.session_state.__setitem__, args=("try_prompts", asked))
        return
    result, there = jobs.result(asked, f"The model answers {PROMPTS} of the prompts", VIEW)
    if result is None or not there:
        return
    for finding in data_words.of_trial(result, spec, taught=bool(asked["base"])):
        _line(draft, finding)
    with st.expander(f"The {len(result['answers'])} answers"):
        st.dataframe(_table(result), hide_index=True, column_config={
            "": st.column_config.TextColumn(width=30), "Prompt": st.column_config.TextColumn(width="medium"),
            "Right answer": st.column_config.TextColumn(width="medium")})


def at_once(spec: RunSpec) -> bool:
    """True if the prompts are tried without a click, because that takes less than two seconds."""
    return int(spec.knobs["max_new_tokens"]) <= AT_ONCE.get(spec.model, 0)


def asked_of(spec: RunSpec) -> dict[str, Any]:
    """The job for a run: the file, the model and the knobs that its answers depend on, and no others."""
    sft = base_spec(spec)
    name = sft.hash() if sft else ""
    sampler = make(kind=spec.kind, algorithm_key=_sft(spec), task_key=spec.task, model=spec.model, data=spec.data,
                   threads=spec.threads, knobs=_counting(spec))
    return {"job": VIEW, "spec": sampler.to_json(), "count": PROMPTS,
            "base": name if name and bases.there(name) else None}


def _sft(spec: RunSpec) -> str:
    return next(row.key for row in spec.kind_row.algorithms.values() if row.loop == "sft")


def _counting(spec: RunSpec) -> dict[str, Value]:
    counting = {"dtype", "temperature", "top_k", "top_p", "max_new_tokens"} | {
        knob.key for knob in (*PROMPT, *spec.task_row.knobs)} - MEASURED
    return {key: value for key, value in spec.knobs.items() if key in counting}


def _table(result: dict[str, Any]) -> DataFrame:
    from pandas import DataFrame  # a third of a second, which the first page of a server need not wait for

    return DataFrame([{"": "✓" if answer["exact"] else "✗", "Prompt": answer["prompt"],
                       "Right answer": answer["answer"], "Model's answer": answer["text"]}
                      for answer in result["answers"]])
