"""Change a field of a lesson's text: its comments, its order and all other fields stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tomlkit

from labcore.analysis.lessons.lesson import FENCE, parted
from labcore.errors import LabError
from labcore.runs.files.untrusted import NotTOML, toml_of

Path = Sequence[str | int]


def fields(text: str) -> tuple[dict[str, Any], str]:
    """The settings and the explanation of a lesson's text, unchecked. Raises LabError if the text has no settings, or
    they are not TOML."""
    head, body = parted(text)
    try:
        return toml_of("\n" + head), body
    except NotTOML as error:
        raise LabError(f"its settings are not TOML ({error}).") from error


def changed(text: str, path: Path, value: Any) -> str:
    """The text with `value` in the field at `path`, which is added if it is missing; None removes the field. Raises
    LabError as `fields`, or if the path leads through something other than a table."""
    _, body = fields(text)  # the checks of a text that may come from anyone
    document = tomlkit.parse(parted(text)[0] + "\n")
    *way, last = path
    place: Any = document
    for key in way:
        if isinstance(place, dict) and key not in place:
            place[key] = tomlkit.table()
        try:
            place = place[key]
        except (KeyError, IndexError, TypeError) as error:
            raise LabError(f"there is no field {'.'.join(map(str, path))}.") from error
    if value is None:
        del place[last]
    else:
        place[last] = _readable(value)
    return joined(tomlkit.dumps(document), body)


def _readable(value: Any) -> Any:
    """A text with quotes in it, such as a check, between single quotes."""
    plain = isinstance(value, str) and '"' in value and "'" not in value and value.isprintable()
    return tomlkit.string(value, literal=True) if plain else value


def with_explanation(text: str, explanation: str) -> str:
    """The text with another explanation. Raises LabError as `fields`."""
    fields(text)
    return joined(parted(text)[0], explanation)


def with_run(text: str) -> str:
    """The text with one more run: a copy of the last one under a name of its own. Raises LabError as `fields`."""
    runs = [run for run in fields(text)[0].get("runs", []) if isinstance(run, dict)]
    names = [run.get("name") for run in runs]
    name = next(f"run_{number}" for number in range(1, len(names) + 2) if f"run_{number}" not in names)
    last = runs[-1] if runs else {"kind": "maze", "algorithm": "q_learning", "task": "corridors", "steps": 60}
    table = tomlkit.table()
    table.update(last | {"name": name, "label": f"run {len(names) + 1}"})
    if isinstance(knobs := table.get("knobs"), dict):
        (inline := tomlkit.inline_table()).update(knobs)
        table["knobs"] = inline
    head, body = parted(text)
    return joined(f"{head.strip()}\n\n{tomlkit.dumps({'runs': [table]})}", body)


def joined(head: str, body: str) -> str:
    """The text of a lesson of its settings and its explanation."""
    return f"{FENCE}\n{head.strip()}\n{FENCE}\n{body.strip()}\n"
