"""Load the teacher of a run by its name.

A teacher is frozen, and no checkpoint holds it: a run that is resumed loads it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from labcore.errors import LabError, listed
from labcore.llm.nets.model import load
from labcore.runs.spec.model_names import model_of_name
from labcore.runs.spec.together import NoTeacher

NAMED = 3  # tokens of another vocabulary that are named


def load_teacher(knobs: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The teacher that the knobs name, frozen, on the cpu.

    Raises:
        LabError: there is none, it cannot be loaded, or it has another vocabulary than the policy's `tokenizer`.
    """
    name = str(knobs["teacher"])
    if not name:
        raise NoTeacher
    teacher, theirs = load(model_of_name(name))
    check_vocabulary(name, theirs, tokenizer)
    return teacher.requires_grad_(False)


def check_vocabulary(name: str, theirs: PreTrainedTokenizerBase, ours: PreTrainedTokenizerBase) -> None:
    """Check that the teacher has the policy's tokens under the same ids. Padding is no token of a completion.

    Raises:
        LabError: it has others; the message names some.
    """
    first, second = ({token: place for token, place in each.get_vocab().items() if token != each.pad_token}
                     for each in (theirs, ours))
    if other := sorted(token for token in first.keys() | second.keys() if first.get(token) != second.get(token)):
        raise LabError(f"The teacher {name} has a different vocabulary from the policy: {len(other):,} of "
                       f"{len(first.keys() | second.keys()):,} tokens differ, such as "
                       f"{listed([repr(token) for token in other[:NAMED]])}. Choose a teacher of the policy's model "
                       "family, or a run on the same model and task.")
