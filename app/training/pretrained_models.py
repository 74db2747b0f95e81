"""Choose a pretrained model: one that is on this machine, or one of the hub, which is downloaded first."""

from __future__ import annotations

import streamlit as st

from app import jobs
from app.draft import Draft
from app.lab import in_words
from app.tokens import literal
from labcore.catalog.amounts import size
from labcore.catalog.llm.models import HUB_MODELS, HubModel
from labcore.errors import LabError
from labcore.runs import jobs as store
from labcore.runs.files import hub_models
from labcore.runs.files.paths import read_only
from labcore.runs.spec.model_names import may_be_hub_id

HERE, HUB = "On this machine", "From the hub"
TITLE = "Pretrained models"
VIEW = "download"
WIDTH = 460  # pixels: the column beside is too narrow for a list with sizes and licences
OTHER = "Another model"


def show(draft: Draft) -> None:
    """A button below the built-in models that opens the choice, which becomes the model of the draft."""
    opened = st.popover(TITLE, icon=":material/download:", key="pretrained_models", on_change="rerun", width="stretch")
    if not opened.open:
        _progress(draft)
        return
    with opened, st.container(width=WIDTH):
        _progress(draft)
        where = st.segmented_control("Where the model is", [HERE, HUB], default=HERE, required=True, width="stretch",
                                     key=f"where:{draft.scope}", label_visibility="collapsed")
        (_here if where == HERE else _hub)(draft)
        if (model := str(draft.fields["model"])) not in draft.kind.models:
            st.caption(f":green[:material/check:] Chosen: {literal(model)}")


def _here(draft: Draft) -> None:
    """The models in the hub's cache, and a folder of the user's."""
    sizes = {each.name: each.bytes for each in hub_models.cached()}
    if sizes:
        key = f"cached:{draft.scope}"
        st.selectbox("Downloaded", sizes, index=None, placeholder="Choose a model", key=key,
                     format_func=lambda name: f"{name} · {size(sizes[name])}",
                     on_change=lambda: _take(draft, st.session_state[key]))
    else:
        st.caption(f"No model of the hub is on this machine yet: choose “{HUB}” to download one.")
    said = st.text_input("Or a folder", placeholder="/path/to/model", key=f"folder:{draft.scope}",
                         help="It holds config.json, a tokenizer and safetensors, as save_pretrained of transformers "
                              "writes them.")
    if said.strip():
        _folder(draft, said)


def _folder(draft: Draft, said: str) -> None:
    try:
        folder = str(hub_models.local(said))
    except LabError as error:
        st.error(in_words(error), icon=":material/error:")
        return
    st.button("Use this folder", key=f"use_folder:{draft.scope}", disabled=draft.fields["model"] == folder,
              on_click=_take, args=(draft, folder), width="stretch")


def _hub(draft: Draft) -> None:
    """The short list, and any other id."""
    chosen = st.radio("Small models of the Hugging Face hub", [*HUB_MODELS, OTHER], format_func=_row,
                      captions=[*map(_about, HUB_MODELS.values()), "Any causal language model with safetensors"],
                      key=f"hub_model:{draft.scope}")
    name = chosen
    if chosen == OTHER:
        name = st.text_input("Its id", placeholder="organisation/name", key=f"hub_id:{draft.scope}").strip()
        if name and not may_be_hub_id(name):
            st.error("Write the id as it is on the hub: organisation/name.", icon=":material/error:")
    elif HUB_MODELS[chosen].gated:
        st.caption(f"Gated: first accept its terms on its [page](https://huggingface.co/{name}), then log in with "
                   "`hf auth login`.")
    if may_be_hub_id(name):
        _button(draft, name)


def _button(draft: Draft, name: str) -> None:
    """Use the model, or download it first where it is not here."""
    if hub_models.here(name):
        st.button("Use this model", icon=":material/check:", key=f"use:{draft.scope}", on_click=_take,
                  args=(draft, name), disabled=draft.fields["model"] == name, width="stretch",
                  help="It is on this machine.")
        return
    size = f" · {HUB_MODELS[name].size}" if name in HUB_MODELS else ""
    st.button(f"Download{size}", icon=":material/download:", key=f"download:{draft.scope}", disabled=read_only(),
              on_click=_download, args=(draft, name), width="stretch",
              help="Only safetensors, tokenizer and JSON. A download that was stopped continues where it ended.")


def _row(name: str) -> str:
    row = HUB_MODELS.get(name)
    return name if row is None else f"{name.partition('/')[2]} · {row.size}"


def _about(row: HubModel) -> str:
    return f"{row.parameters} parameters · {row.licence}{' · gated' * row.gated} · {row.good_for}"


def _download(draft: Draft, name: str) -> None:
    """Begin the download: an outcome of an earlier one is no longer true where the model is not here."""
    job = store.job_id(_asked(name))
    if store.ended(job):
        store.forget(job)
    st.session_state.pop(f"asked:{VIEW}", None)
    st.session_state[f"downloading:{draft.scope}"] = name


def _progress(draft: Draft) -> None:
    """Show the progress of the download, also while the choice is closed; once it is complete the model is chosen."""
    key = f"downloading:{draft.scope}"
    if (name := st.session_state.get(key)) is None:
        return
    found, there = jobs.result(_asked(name), "Download", VIEW, choice=name)
    if found and there:
        del st.session_state[key]
        _take(draft, name)
        st.rerun()


def _asked(name: str) -> store.Spec:
    return {"job": "download", "name": name}


def _take(draft: Draft, model: str | None) -> None:
    if model:
        draft.choose("model", model)
