"""Take a run away: one zip, or the table alone. Each file is made when its button is pressed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import streamlit as st

from app.lab import active, lab
from labcore.runs import checkpoint, export
from labcore.runs.paths import run_folder
from labcore.runs.rows import RunRow

# What a kind's checkpoint is, and how to use it: language and text.
HOLDS = {
    "llm": "a Hugging Face folder that loads without any code of ours",
    "maze": "the tables (safetensors and CSV) and the maze (JSON)",
    "cartpole": "the newest and the best network (safetensors) and what they were made for (JSON)",
}
LOADS = {
    "llm": ("python", """from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{run}/checkpoint")
tokenizer = AutoTokenizer.from_pretrained("{run}/checkpoint")"""),
    "maze": ("bash", "python -m labcore play {run}"),
    "cartpole": ("bash", "python -m labcore play {run} --best"),
}


def metrics_csv(run_id: str) -> bytes:
    """One row per step at full resolution, exactly what was logged; works before the first checkpoint too."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.csv"
        export.write_metrics(path, lab().store.steps_after(run_id))
        return path.read_bytes()


def _zip(run_id: str) -> bytes:
    return export.export_zip(lab().store, run_id).read_bytes()


def buttons(run: RunRow) -> None:
    """Both downloads and how to load the model elsewhere."""
    ready = checkpoint.newest(run_folder(run.id)) is not None
    with st.container(horizontal=True):
        st.download_button("Download everything (zip)", lambda: _zip(run.id), f"{run.id}.zip", "application/zip",
                           icon=":material/archive:", type="primary", on_click="ignore", disabled=not ready,
                           help=None if ready else "Comes with the first checkpoint", key=f"zip:{run.id}")
        st.download_button("metrics.csv", lambda: metrics_csv(run.id), f"{run.id}-metrics.csv", "text/csv",
                           icon=":material/table:", on_click="ignore", disabled=run.step == 0, key=f"csv:{run.id}")
    now = " The run is still going: this is its newest checkpoint." if active(run) and ready else ""
    st.caption("The zip holds metrics.csv and events.csv as they were logged, spec.json, and checkpoint/, "
               f"{HOLDS[run.spec.kind]}.{now}")
    language, text = LOADS[run.spec.kind]
    st.code(text.format(run=run.id), language=language)
