"""The data that a command names: a file, or a dataset of the Hugging Face hub."""

from __future__ import annotations

import sys
from pathlib import Path

from labcore.runs.files import datasets
from labcore.runs.files.jsonl import LIMIT
from labcore.runs.files.uploads import keep_file


def kept_data(word: Path) -> Path:
    """The upload that holds the file or the dataset of this name. Raises LabError if it cannot be read, or fetched."""
    asked = datasets.parse(str(word))
    if asked is None:
        return keep_file(word, LIMIT)
    found = datasets.fetch(asked)
    if found.note:
        print(f"labcore: {found.note}", file=sys.stderr)
    return found.path
