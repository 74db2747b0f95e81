"""Export a run: one zip, its capsule, the table alone, or a script for another tool.

Each file is made when its button is pressed.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import streamlit as st

from app import sharing
from app.jobs import result
from app.lab import active, errors_shown, lab
from app.tokens import literal
from app.training.feed import Feed
from labcore.exports import folder as export
from labcore.exports import folder as merged
from labcore.exports.capsules import packing
from labcore.exports.handover.plan import Plan, fits
from labcore.exports.handover.tools import TOOLS
from labcore.runs import jobs
from labcore.runs.best import words
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import read_only, run_folder
from labcore.runs.models import chats
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title

# What a kind's checkpoint is, and how to use it: language and text.
HOLDS = {
    "llm": "a Hugging Face folder that loads without this lab",
    "exact": "a Hugging Face folder; a tabular model needs this lab to load, a transformer does not",
    "maze": "the tables (safetensors and CSV) and the maze (JSON)",
    "cartpole": "the newest and the best network (safetensors) and their task (JSON)",
}
LOADS = {
    "llm": ("python", """from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{run}/checkpoint")
tokenizer = AutoTokenizer.from_pretrained("{run}/checkpoint")"""),
    "exact": ("python", """from labcore.llm.nets.model import load

model, tokenizer = load("{run}/checkpoint")"""),
    "maze": ("bash", "python -m labcore play {run}"),
    "cartpole": ("bash", "python -m labcore play {run} --best"),
}


ADAPTER = "a LoRA adapter in the format of peft, without its base model"
LOADS_ADAPTER = ("python", """from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

model = AutoPeftModelForCausalLM.from_pretrained("{run}/checkpoint")
tokenizer = AutoTokenizer.from_pretrained("{run}/checkpoint")""")
OPEN = "export"  # the run whose downloads are open in a dialog


def metrics_csv(run_id: str) -> bytes:
    """One row per step at full resolution, exactly what was logged; works before the first checkpoint too."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.csv"
        export.write_metrics(path, lab().store.every_step(run_id, lab().store.run(run_id).step))
        return path.read_bytes()


def _zip(run_id: str, best: bool) -> bytes:
    return export.export_zip(lab().store, run_id, best).read_bytes()


def _capsule(run_id: str) -> bytes:
    return packing.write_own(lab().store, run_id).read_bytes()


def show(run: RunRow, feed: Feed) -> None:
    """The downloads, how to load the model elsewhere, and for language models the same run with another tool.

    While the run is going, its page is drawn again twice a second, and a download button that is drawn again forgets
    its file. So the buttons are then in a dialog, which is drawn once.
    """
    if not active(run):
        _downloads(run)
    elif st.button("Download …", icon=":material/archive:", type="primary", disabled=run.step == 0, key="export:open"):
        st.session_state[OPEN] = run.id
        st.rerun()
    if run.spec.kind_row.elsewhere:
        st.caption("The zip holds metrics.csv, events.csv and knobs.csv as they were sent, with the lab's metric names "
                   "where they exist, the metrics for TensorBoard, and spec.json. Checkpoints stay with the trainer.")
        return
    adapted = bool(run.spec.knobs.get("lora_rank"))
    if adapted and not active(run):
        _merged(run)
    holds = ADAPTER if adapted else HOLDS[run.spec.kind]
    language, text = LOADS_ADAPTER if adapted else LOADS[run.spec.kind]
    st.caption("The zip holds metrics.csv, events.csv and knobs.csv as they were logged, the metrics for TensorBoard, "
               f"spec.json, and checkpoint/, {holds}.")
    st.code(text.format(run=run.id), language=language)
    st.caption("The capsule holds everything that reproduces the run. Anybody with the lab can check that every "
               "number is the same, bit for bit, or import it on the page Runs.")
    st.code(f"python -m labcore replay {packing.name_of(run.id)}", language="bash")
    if fits(run.spec):
        _further(run, feed)


def dialog(run: RunRow | None) -> None:
    """Draw the dialog with the downloads of a running run, while it is open."""
    if run is not None and st.session_state.get(OPEN) == run.id:
        st.dialog(f"Download {literal(title(run))}", width="medium",
                  on_dismiss=lambda: st.session_state.pop(OPEN, None))(_while_going)(run)


@errors_shown()
def _while_going(run: RunRow) -> None:
    _downloads(run)
    weights = "" if run.spec.kind_row.elsewhere else " and the newest checkpoint"
    st.caption(f"The run has not finished, so each file has the data up to now{weights}."
               if active(run) else "The run has ended, so each file is complete.")


def _downloads(run: RunRow) -> None:
    best = not run.spec.kind_row.elsewhere and _best(run)
    with st.container(horizontal=True):
        _whole(run, best)
        st.download_button("metrics.csv", lambda: metrics_csv(run.id), f"{run.id}-metrics.csv", "text/csv",
                           icon=":material/table:", on_click="ignore", disabled=run.step == 0, key=f"csv:{run.id}")
    sharing.show([run.id], run.id, run.step > 0)


def _whole(run: RunRow, best: bool) -> None:
    """Offer the zip, with the best or the newest checkpoint, and the capsule. A watched run has neither a checkpoint
    nor a capsule."""
    elsewhere = run.spec.kind_row.elsewhere
    ready = run.step > 0 if elsewhere else checkpoint.newest_step(run_folder(run.id)) is not None
    st.download_button("Download everything (zip)", lambda: _zip(run.id, best), f"{run.id}.zip", "application/zip",
                       icon=":material/archive:", type="primary", on_click="ignore", disabled=not ready,
                       help=None if ready else "Available after the first checkpoint", key=f"zip:{run.id}")
    if elsewhere:
        return
    fault = packing.fault(run)
    st.download_button("Download capsule", lambda: _capsule(run.id), packing.name_of(run.id), "application/zip",
                       icon=":material/deployed_code_history:", on_click="ignore", disabled=bool(fault),
                       help=literal(fault) if fault and run.step else None, key=f"capsule:{run.id}")


def _best(run: RunRow) -> bool:
    """True if the zip is to have the best checkpoint in place of the newest: asked where they are not the same."""
    newest, best = checkpoint.newest_step(run_folder(run.id)), checkpoint.best(run_folder(run.id))
    if not best or best["step"] == newest:
        return False
    named = {False: f"Newest (step {newest:,})", True: f"Best (step {best['step']:,}: {words(best)})"}
    return bool(st.segmented_control("Checkpoint in the zip", list(named), format_func=lambda key: named[key],
                                     default=False, required=True, key=f"checkpoint:{run.id}"))


def _merged(run: RunRow) -> None:
    """The adapter added to its base: made off the page once it is asked for, then a download."""
    newest = checkpoint.newest_step(run_folder(run.id))
    if newest is None:
        return
    if st.session_state.get(f"merged:{run.id}"):
        spec = {"job": "merge", "run": run.id, "step": newest}
        if (job := jobs.job_id(spec)) and jobs.ended(job) and not merged.file(run.id).exists():
            jobs.forget(job)  # the file was cleaned away
        if result(spec, "Adding the adapter to its base model", "merge")[1]:
            st.download_button("Download merged model (zip)", lambda: merged.file(run.id).read_bytes(),
                               f"{run.id}-merged.zip", "application/zip", icon=":material/merge:", on_click="ignore",
                               key=f"merged_zip:{run.id}")
    else:
        st.button("Make merged model", icon=":material/merge:", key=f"merge:{run.id}", on_click=_merge, args=(run.id,),
                  disabled=read_only(),
                  help="The base model with the adapter in its weights: it loads without peft.")


def _merge(run_id: str) -> None:
    st.session_state[f"merged:{run_id}"] = True


def _further(run: RunRow, feed: Feed) -> None:
    """The run's settings as a script for a tool that is made for large models."""
    st.markdown("**Take it further**")
    with st.container(horizontal=True, vertical_alignment="center"):
        chosen = TOOLS[st.segmented_control("Tool", list(TOOLS), format_func=lambda key: TOOLS[key].label,
                                            key="further", default="trl", required=True,
                                            label_visibility="collapsed")]
        spec = replace(run.spec, knobs=feed.knobs(feed.last_step))
        script = _script(chosen.key, run.id, spec, chats(run.id, spec))
        st.download_button("Download script", script, chosen.file(run.id), "text/plain", icon=":material/code:",
                           on_click="ignore", key=f"script:{chosen.key}:{run.id}")
    st.caption(f"The same training with {chosen.label} {chosen.version}, on this run's checkpoint or a large model: "
               "every knob under its name there. Comments mark the differences of that tool.")
    st.code(script, language=chosen.language, height=420)


@st.cache_data(max_entries=16, show_spinner=False, hash_funcs={RunSpec: RunSpec.to_json})
def _script(key: str, run_id: str, spec: RunSpec, chat: bool) -> str:
    return TOOLS[key].script(Plan(run_id, spec, chat))
