"""Read the JSON files that the lab wrote into its home, any of which may have been damaged since."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from labcore.errors import LabError
from labcore.runs.files.untrusted import NotJSON, json_of

Form = TypeVar("Form", dict[str, Any], list[Any])


class Damaged(LabError):
    """A file of the lab's is not what the lab wrote."""


def read(path: Path, form: type[Form], what_then: str) -> Form:
    """The content of a file, which is a `form`; `what_then` ends the sentence where it is damaged.

    Raises:
        FileNotFoundError: it is not there.
        Damaged: it is no JSON, or none of this form.
    """
    try:
        found = json_of(path.read_bytes(), constants=True)
    except NotJSON as error:
        raise Damaged(f"{path} is damaged ({error}): {what_then}.") from error
    if not isinstance(found, form):
        raise Damaged(f"{path} is damaged (it holds no {'object' if form is dict else 'list'}): {what_then}.")
    return found
