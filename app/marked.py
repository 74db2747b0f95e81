"""Replace the marked keys in the lab's sentences by names.

A sentence of the lab writes the key of a knob or a choice, or a knob's setting, between backticks, as in "`beta` is
200". Programs and the command line show it unchanged; pages show the label of the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from labcore.catalog import choices
from labcore.catalog.choice import Choice
from labcore.catalog.knob import Knob
from labcore.runs.spec.model_names import without_folders
from labcore.runs.spec.run_spec import every_knob


def _quoted(choice: Choice) -> str:
    """Return the label of a choice within a sentence."""
    return f"“{choice.label.partition(':')[0]}”"


# The family of a knob that chooses among its members.
FAMILIES = ({family.key: family for family in (*choices.FAMILIES, choices.OBJECTIVE)}
            | dict.fromkeys(choices.LOSSES, choices.PREFERENCE_LOSS))
_CHOICES = {choice.key: _quoted(choice) for family in choices.FAMILIES for choice in family}


def worded(sentence: str, own: Iterable[Knob] = ()) -> str:
    """Return the sentence with labels in place of marked keys, and without the folders of the lab's own files.

    `own` are the knobs of the run in question, whose labels may differ.

    >>> worded("`beta` is 200: use `token_mean`, or `group_size=4`.")
    'KL coefficient β is 200: use “mean over all tokens of the update”, or G=4.'
    >>> worded("TypeError: `f` takes no beta")
    'TypeError: `f` takes no beta'
    """
    knobs = every_knob() | {knob.key: knob for knob in own}
    parts = without_folders(sentence).split("`")
    for place in range(1, len(parts), 2):
        first = not parts[place - 1] or parts[place - 1].endswith((": ", ". "))
        known = _name(parts[place], knobs, first) if place + 1 < len(parts) else ""
        parts[place] = known or f"`{parts[place]}" + "`" * (place + 1 < len(parts))
    return "".join(parts)


def _name(marked: str, knobs: Mapping[str, Knob], first: bool) -> str:
    """Return the label of a key between backticks; empty if it is neither a knob nor a choice."""
    key, is_set, value = marked.partition("=")
    if key not in knobs:
        return _CHOICES.get(marked, "")
    if key in FAMILIES and value in FAMILIES[key].names:
        return f"{knobs[key].name} {_quoted(FAMILIES[key][value])}"
    return (knobs[key].title if first and not is_set else knobs[key].name) + is_set + value
