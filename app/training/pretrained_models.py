"""Choose a pretrained model: one that is on this machine, or one of the hub, which is downloaded first."""

from __future__ import annotations

import streamlit as st

from app import jobs
from app.session import Draft
from app.tokens import literal
from labcore.catalog.llm.hub_models import HUB_MODELS
from labcore.errors import LabError
from labcore.files import hub_models
from labcore.files.paths import read_only
from labcore.jobs import jobs as store
from labcore.spec.model_names import may_be_hub_id

HERE, HUB = "On this machine", "From the hub"
TITLE = "Pretrained models"
VIEW = "download"


def show(draft: Draft) -> None:
    """The fold below the built-in models; the choice becomes the model of the draft."""
    fold = st.expander(TITLE, icon=":material/download:", key="pretrained_models", on_change="rerun")
    if not fold.open:
        return
    with fold:
        where = st.segmented_control("Where the model is", [HERE, HUB], default=HERE, required=True, width="stretch",
                                     key=f"where:{draft.scope}", label_visibility="collapsed")
        (_here if where == HERE else _hub)(draft)


def _here(draft: Draft) -> None:
    """The models in the hub's cache, and a folder of the user's."""
    sizes = {each.name: each.bytes for each in hub_models.cached()}
    if sizes:
        key = f"cached:{draft.scope}"
        st.selectbox("Downloaded", sizes, index=None, placeholder="Choose a model", key=key,
                     format_func=lambda name: f"{name} · {sizes[name] / 1e6:,.0f} MB",
                     on_change=lambda: _take(draft, st.session_state[key]))
    else:
        st.caption(f"No model of the hub is on this machine yet: choose “{HUB}” to download one.")
    said = st.text_input("Or a folder", placeholder="/path/to/model", key=f"folder:{draft.scope}",
                         help="It holds config.json, a tokenizer and safetensors, as save_pretrained of transformers "
                              "writes them.")
    if said.strip():
        _folder(draft, said)
    _chosen(draft)


def _folder(draft: Draft, said: str) -> None:
    try:
        folder = str(hub_models.local(said))
    except LabError as error:
        st.error(literal(str(error)), icon=":material/error:")
        return
    st.button("Use this folder", key=f"use_folder:{draft.scope}", disabled=draft.fields["model"] == folder,
              on_click=_take, args=(draft, folder), width="stretch")


def _hub(draft: Draft) -> None:
    """The short list, and any other id."""
    name = st.selectbox("Model of the Hugging Face hub", list(HUB_MODELS), format_func=_row, accept_new_options=True,
                        key=f"hub_model:{draft.scope}",
                        help="Or type any id, organisation/name. Only safetensors, tokenizer and JSON are downloaded.")
    name = (name or "").strip()
    if row := HUB_MODELS.get(name):
        gated = (f" Gated: accept its terms on its [page](https://huggingface.co/{name}), then log in with "
                 "`hf auth login`." if row.gated else "")
        st.caption(f"For {row.good_for}. Licence: {row.licence}.{gated}")
    if not may_be_hub_id(name):
        st.caption("Write the id as it is on the hub: organisation/name.")
        return
    if hub_models.here(name):
        st.button("Use this model", icon=":material/check:", key=f"use:{draft.scope}", on_click=_take,
                  args=(draft, name), disabled=draft.fields["model"] == name, width="stretch")
        st.caption("It is on this machine.")
    else:
        size = f" · {row.size}" if row else ""
        st.button(f"Download{size}", icon=":material/download:", key=f"download:{draft.scope}", disabled=read_only(),
                  on_click=_download, args=(draft, name), width="stretch")
    _progress(draft)
    _chosen(draft)


def _row(name: str) -> str:
    row = HUB_MODELS.get(name)
    return name if row is None else (f"{name.partition('/')[2]} · {row.parameters} · {row.size} · {row.licence}"
                                     f"{' · gated' if row.gated else ''}")


def _download(draft: Draft, name: str) -> None:
    """Begin the download: an outcome of an earlier one is no longer true where the model is not here."""
    job = store.job_id(_asked(name))
    if store.ended(job):
        store.forget(job)
    st.session_state.pop(f"asked:{VIEW}", None)
    st.session_state[f"downloading:{draft.scope}"] = name


def _progress(draft: Draft) -> None:
    """How far the download is; once it is complete the model is chosen."""
    key = f"downloading:{draft.scope}"
    if (name := st.session_state.get(key)) is None:
        return
    found, there = jobs.result(_asked(name), f"Download of {literal(name)}", VIEW, choice=name)
    if found and there:
        del st.session_state[key]
        _take(draft, name)
        st.rerun()


def _asked(name: str) -> store.Spec:
    return {"job": "download", "name": name}


def _take(draft: Draft, model: str | None) -> None:
    if model:
        draft.choose("model", model)


def _chosen(draft: Draft) -> None:
    model = str(draft.fields["model"])
    if model not in draft.kind.models:
        st.caption(f":green[:material/check:] Chosen: {literal(model)}")
