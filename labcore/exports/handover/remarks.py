"""Texts of a script: the packages that it needs, and comments on the tool's differences from the lab."""

from __future__ import annotations

import textwrap

from labcore.exports.handover.plan import Line

_WIDTH = 100


def requirement(package: str, version: str, *extras: str) -> str:
    """A tool as pip takes it: in quotes where it has extras, since some shells read brackets as a pattern."""
    return f'"{package}[{",".join(extras)}]=={version}"' if extras else f"{package}=={version}"


def remarks(found: list[Line], tool: str) -> str:
    """Comments on the differences of the tool, and on knobs that it covers by itself; each line begins with "# "."""
    blocks = []
    for title, these in (
            (f"{tool} has no such setting:", [line for line in found if line.unsupported]),
            ("Set, but not quite the same:", [line for line in found if line.settings and line.note])):
        if these:
            blocks.append("\n".join([f"# {title}", *(comment(said, "#   ", "#     ") for said in _together(these))]))
    if own := [line for line in found if line.built_in]:
        said = ", ".join(f"{line.knob}={line.value!r}" for line in own)
        blocks.append(comment(f"The same there without a setting, or in the code below: {said}.", "# ", "#   "))
    return "\n#\n".join(blocks)


def _together(found: list[Line]) -> list[str]:
    """One sentence for all the knobs that a note is about."""
    notes: dict[str, list[str]] = {}
    for line in found:
        notes.setdefault(line.note, []).append(f"{line.knob}={line.value!r}")
    return [f"{', '.join(knobs)}: {note}." for note, knobs in notes.items()]


def comment(text: str, first: str = "# ", rest: str = "# ") -> str:
    """`text` as comment lines; never more than its own lines, whatever the user's texts in it are."""
    one_line = " ".join(text.split())
    return textwrap.fill(one_line, _WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False,
                         break_on_hyphens=False)
