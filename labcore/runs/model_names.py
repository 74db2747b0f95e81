"""What models are called: RUN@STEP for a run's checkpoint, "SFT base HASH" for what SFT made, else as they were given.

`base:RUN` in labcore/jobs/models.py is another thing: the model that a run started from.
"""

from __future__ import annotations

import re
from pathlib import Path

from labcore.runs import checkpoint
from labcore.runs.paths import home, is_run_id, run_folder

_FOLDERS = re.compile(r"(?P<run>[\w.-]+)/checkpoints/step-(?P<step>\d+)/policy|base/(?P<base>\w+)/model")
_NAME = re.compile(r"(?P<run>\w[\w.-]*?)(?:@(?P<step>\d{1,9}))?|SFT base (?P<base>\w+)")


def name_of_model(model: str) -> str:
    """The name of a folder that the lab itself made; any other model as it is."""
    path = Path(model)
    found = _FOLDERS.fullmatch(path.relative_to(home()).as_posix()) if path.is_relative_to(home()) else None
    return _name(found) if found else model


def model_of_name(name: str) -> str:
    """The folder of the model that is called so, for a run alone the newest it left; any other text as it is."""
    found = _NAME.fullmatch(name)
    if found and found["base"]:
        folder = home() / "base" / found["base"] / "model"
        return str(folder) if folder.is_dir() else name
    if found and is_run_id(found["run"]) and (steps := dict(checkpoint.steps(run_folder(found["run"])))):
        step = int(found["step"]) if found["step"] else max(steps)
        return str(steps[step] / "policy") if step in steps else name
    return name


def without_folders(sentence: str) -> str:
    """The sentence with the lab's own models by their names, and uploads by the names of their files."""
    inside = rf"(?<![\w./-]){re.escape(str(home()))}/"
    sentence = re.sub(inside + r"uploads/\w+/(?=\w)", "", sentence)
    return re.sub(rf"{inside}(?:{_FOLDERS.pattern})(?![\w/-]|\.\w)", _name, sentence)


def _name(found: re.Match[str]) -> str:
    return f"SFT base {found['base']}" if found["base"] else f"{found['run']}@{int(found['step'])}"
