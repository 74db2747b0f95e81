"""What models are called: RUN@STEP for a run's checkpoint, "SFT base HASH" for what SFT made, else as they were given.

`base:RUN` in labcore/jobs/models.py is another thing: the model that a run started from.
"""

from __future__ import annotations

import re
from pathlib import Path

from labcore.catalog.kinds import built_in
from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.files import checkpoints as checkpoint
from labcore.files.paths import home, is_run_id, run_folder

_FOLDERS = re.compile(r"(?P<run>[\w.-]+)/checkpoints/step-(?P<step>\d+)/policy|base/(?P<base>\w+)/model")
_NAME = re.compile(r"(?P<run>\w[\w.-]*?)(?:@(?P<step>\d{1,9}))?|SFT base (?P<base>\w+)")


def name_of_model(model: str) -> str:
    """The name of a folder that the lab itself made; any other model as it is."""
    if not model.endswith(("policy", "model")):  # lists ask for thousands
        return model
    path = Path(model)
    found = _FOLDERS.fullmatch(path.relative_to(home()).as_posix()) if path.is_relative_to(home()) else None
    return _name(found) if found else model


def model_of_name(name: str) -> str:
    """The folder of the model that is called so, for a run alone the newest it left; any other text as it is.

    What comes with the lab goes first: a run that was brought in may be called like it.
    """
    found = None if name in built_in() else _NAME.fullmatch(name)
    if found and found["base"]:
        folder = home() / "base" / found["base"] / "model"
        return str(folder) if folder.is_dir() else name
    if found and (policies := _policies(found["run"])):
        return str(policies.get(int(found["step"]) if found["step"] else max(policies), name))
    return name


def check(model: str) -> None:
    """Raise LabError where `model` is a name alone, no folder and no hub id, and no run here has such a model."""
    if model in built_in() or "/" in model or Path(model).exists():
        return
    found = _NAME.fullmatch(model)
    if not found or not found["run"] or not is_run_id(found["run"]) or not run_folder(found["run"]).is_dir():
        raise missing(model)
    policies = _policies(found["run"])
    if not policies:
        raise LabError(f"The run {found['run']} has no language model to start from: take one that has made a "
                       "checkpoint in the LLM lab.")
    if found["step"] and int(found["step"]) not in policies:
        raise LabError(f"The run {found['run']} has no checkpoint of step {found['step']}: take one of "
                       f"{', '.join(map(str, sorted(policies)))}.")


def missing(model: str) -> LabError:
    """What to say where nothing is called `model`."""
    return LabError(f"There is no model {model!r}: choose {', '.join(MODELS)}, an earlier run (RUN or RUN@STEP), a "
                    "Hugging Face folder, or a hub id such as HuggingFaceTB/SmolLM2-135M.")


def _policies(run: str) -> dict[int, Path]:
    """The folders of a run's language models by their steps."""
    found = checkpoint.steps(run_folder(run)) if is_run_id(run) else ()
    return {step: folder / "policy" for step, folder in found if (folder / "policy").is_dir()}


def without_folders(sentence: str) -> str:
    """The sentence with the lab's own models by their names, and uploads by the names of their files."""
    inside = rf"(?<![\w./-]){re.escape(str(home()))}/"
    sentence = re.sub(inside + r"uploads/\w+/(?=\w)", "", sentence)
    return re.sub(rf"{inside}(?:{_FOLDERS.pattern})(?![\w/-]|\.\w)", _name, sentence)


def _name(found: re.Match[str]) -> str:
    return f"SFT base {found['base']}" if found["base"] else f"{found['run']}@{int(found['step'])}"
