"""Cautions about a language model's run before it starts."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from pkgutil import resolve_name

from labcore import machine
from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.runs.files.paths import path_of
from labcore.runs.files.untrusted import NotJSON, read_json
from labcore.runs.spec import eight_bit, vllm
from labcore.runs.spec.model_names import may_be_hub_id
from labcore.runs.spec.run_spec import RunSpec

# ---------------------------------------------------------------- precision
# What is to be said of a run's precision before it starts.


def precision_caution(spec: RunSpec) -> str:
    """A caution if the run asks for bf16 and its device is known to lack bf16 arithmetic; otherwise empty."""
    if spec.knobs.get("dtype") != "bf16" or (found := machine.bf16(spec.device)).able is not False:
        return ""
    return (f"`dtype` is bf16, but {found.where} has no bf16 arithmetic, so precision is lost and no time is saved: "
            "choose fp32.")


# ---------------------------------------------------------------- chat templates
# Whether a model has a chat template, by its files alone: nothing is loaded or fetched.

FILES = ("chat_template.jinja", "chat_template.json")
CONFIG = "tokenizer_config.json"  # which may hold the template as a text


def template_caution(spec: RunSpec) -> str:
    """A caution if a model that was trained with a chat template would get plain text; usually empty."""
    if spec.knobs.get("template") != "off" or not has_template(spec.model):
        return ""
    return ("The model has a chat template, but template is off, so it reads plain text, unlike its training: set "
            "template=auto.")


def has_template(model: str) -> bool | None:
    """None where the files of a hub's model are not here."""
    if model in MODELS:
        return False
    folder = path_of(os.path.expanduser(model))
    if folder.is_dir():
        return any((folder / name).is_file() for name in FILES) or _in_config(folder / CONFIG)
    if not may_be_hub_id(model):
        return None
    from huggingface_hub import try_to_load_from_cache  # a third of a second

    found = {name: try_to_load_from_cache(model, name) for name in (*FILES, CONFIG)}
    if any(isinstance(found[name], str) for name in FILES):
        return True
    config = found[CONFIG]
    return _in_config(Path(config)) if isinstance(config, str) else None


def _in_config(path: Path) -> bool:
    try:
        return _holds_template(path, path.stat().st_mtime)
    except OSError:
        return False


@lru_cache(maxsize=8)  # a page asks at every touch of a knob
def _holds_template(path: Path, changed: float) -> bool:
    try:
        config = read_json(path, constants=True)
    except (LabError, NotJSON):  # said where the model is loaded
        return False
    return isinstance(config, dict) and bool(config.get("chat_template"))


# ---------------------------------------------------------------- cautions

_LONG_TEXTS = "labcore.tasks.cautions:long_texts_caution"  # tasks know of specs, not specs of tasks


def fault(spec: RunSpec) -> str:
    """The reason why the run cannot start on this machine, such as a missing package or GPU; empty if it can."""
    return vllm.fault_of(spec) or eight_bit.fault(spec)


def caution(spec: RunSpec) -> str:
    """The cautions of its precision, its sampler, its optimizer, its template and its texts; empty if there are
    none."""
    of_texts = str(resolve_name(_LONG_TEXTS)(spec))
    return " ".join(filter(None, (precision_caution(spec), vllm.caution(spec), eight_bit.fault(spec),
                                  template_caution(spec), of_texts)))
