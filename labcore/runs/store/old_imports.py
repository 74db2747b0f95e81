"""Imported metrics of before version 4, which had their marks in their about.json, and a folder as their trash."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from labcore.errors import LabError, os_reason
from labcore.runs.files.paths import imports, is_import


def taken_over() -> list[dict[str, Any]]:
    """Move what lies in that trash to the other imports; return the marks of all, as rows of the table of marks. Raises
    LabError if a folder cannot be moved."""
    rows = [row for folder in _folders(imports()) if (row := _marks(folder))]
    for folder in _folders(trash := imports() / ".trash"):
        if (target := imports() / folder.name).exists():  # imported again meanwhile: the same file
            continue
        deleted = folder.stat().st_mtime
        try:
            folder.rename(target)
        except OSError as error:
            raise LabError(f"{folder} cannot be moved out of the trash of an earlier version ({os_reason(error)}): "
                           "check the folder's permissions, or delete it.") from error
        unmarked = {"id": folder.name, "star": False, "tags": "[]", "note": ""}
        rows.append({**(_marks(target) or unmarked), "deleted": deleted})
    with suppress(OSError):  # there is none, or something else is in it
        trash.rmdir()
    return rows


def _marks(folder: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError, AttributeError):  # a damaged one has no marks; the list says that it is damaged
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        star, tags, note = bool(about.get("star")), about.get("tags") or [], about.get("note") or ""
        if star or tags or note:
            return {"id": folder.name, "star": star, "tags": json.dumps(tags, ensure_ascii=False), "note": note,
                    "deleted": None}
    return None


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if is_import(path.name) and path.is_dir()] if folder.is_dir() else []
