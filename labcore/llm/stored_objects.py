"""Convert dataclasses of tensors, numbers and texts to tensors and JSON and back, to store them in a checkpoint.

Only the classes that this module lists can be read, so a file cannot create any other object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pkgutil import resolve_name
from typing import Any

from torch import Tensor

from labcore.errors import LabError

CLASSES = {name: f"labcore.llm.{place}:{name}" for name, place in (
    ("Lot", "group_queue"), ("Sampled", "experience"), ("Prompts", "batch"), ("Completions", "batch"),
    ("Rewards", "rewards"))} | {
        **{name: f"labcore.tasks.task:{name}" for name in ("Problem", "Turn")},
        **{name: f"labcore.tasks.environment:{name}" for name in ("Episode", "Move")}}
# How JSON names what it has no form for.
_TENSOR, _CLASS, _MAP, _TUPLE, _TEXT = "tensor", "class", "map", "tuple", "text"


def packed(value: Any) -> tuple[dict[str, Tensor], Any]:
    """The tensors in `value` by their names, and the rest of it as JSON."""
    tensors: dict[str, Tensor] = {}
    return tensors, _packed(value, tensors)


def _packed(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors[name := str(len(tensors))] = value.detach().contiguous()
        return {_TENSOR: name}
    kind = type(value).__name__
    if isinstance(value, str) and kind in CLASSES:  # a text that knows what it is made of
        return {_CLASS: kind, _TEXT: [_packed(each, tensors) for each in value.__getnewargs__()]}
    if is_dataclass(value) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        if kind not in CLASSES:
            raise TypeError(f"{kind} is no class that a checkpoint may hold: see stored_objects.CLASSES")
        names = [each.name for each in fields(value)] if is_dataclass(value) else value._fields
        return {_CLASS: kind, _MAP: {name: _packed(getattr(value, name), tensors) for name in names}}
    if isinstance(value, Mapping):
        return {_MAP: {key: _packed(each, tensors) for key, each in value.items()}}
    if isinstance(value, tuple):
        return {_TUPLE: [_packed(each, tensors) for each in value]}
    return [_packed(each, tensors) for each in value] if isinstance(value, list) else value


def unpacked(tensors: Mapping[str, Tensor], found: Any) -> Any:
    """The objects that `packed` took apart. Raises LabError where the JSON names another class."""
    if isinstance(found, list):
        return [unpacked(tensors, each) for each in found]
    if not isinstance(found, dict):
        return found
    if _TENSOR in found:
        return tensors[found[_TENSOR]]
    if _TUPLE in found:
        return tuple(unpacked(tensors, each) for each in found[_TUPLE])
    texts = [unpacked(tensors, each) for each in found.get(_TEXT, ())]
    values = {key: unpacked(tensors, each) for key, each in found.get(_MAP, {}).items()}
    if _CLASS not in found:
        return values
    if found[_CLASS] not in CLASSES:
        raise LabError(f"it names the class {found[_CLASS]!r}, which no checkpoint holds")
    return resolve_name(CLASSES[found[_CLASS]])(*texts, **values)
