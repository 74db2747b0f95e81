"""`parametrize` for checks that take less time than pytest needs for an item, one item for all values, and for those of
which `make test` tries one of each sort."""

import reprlib
from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from typing import Any

import pytest

Test = Callable[..., None]


def now(values: Iterable[Any], *chosen: Any) -> list[Any]:
    """Parameters: the chosen ones, of each sort one, are for `make test`, the others for `make test-long`."""
    values = [*values]
    assert all(value in values for value in chosen), "one of them is gone"
    return [value if value in chosen else pytest.param(*(value if isinstance(value, tuple) else (value,)),
                                                       marks=pytest.mark.long) for value in values]


def every(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """The test for each of the values, in one item that names all values that fail. Its fixtures are made once."""
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else names

    def decorate(test: Test) -> Test:
        @wraps(test)
        def tests(**fixtures: Any) -> None:
            faults, given = [], {}
            for value in values:
                given = dict(zip(keys, value if len(keys) > 1 else [value], strict=True))
                try:
                    test(**given, **fixtures)
                except Exception as error:
                    error.add_note(f"with {reprlib.repr(given)}")
                    faults.append(error)
            assert given, "there is nothing to check"
            if faults:
                raise ExceptionGroup(f"{len(faults)} fail", faults)
        asked = signature(test)
        tests.__signature__ = asked.replace(parameters=[
            parameter for name, parameter in asked.parameters.items() if name not in keys])
        return tests
    return decorate
