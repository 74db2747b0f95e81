"""Counts what is asked of a store: lists and pages must ask as often for a thousand runs as for ten."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements that any store of this process is given until the end of the block, BEGIN left out."""
    found: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("BEGIN"):
            found.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
