"""Since version 4 stars, tags, notes and the trash are in a table of their own, those of imported metrics as well."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from labcore.runs.store import old_imports

revision = "4"
down_revision = "3"

OF_RUNS: list[sa.ColumnClause[Any]] = [sa.column("star", sa.Boolean), sa.column("tags", sa.Text),
                                       sa.column("note", sa.Text), sa.column("deleted", sa.Double)]


def upgrade() -> None:
    marks = op.create_table(
        "lab_marks", sa.Column("id", sa.String(100), primary_key=True), sa.Column("star", sa.Boolean, nullable=False),
        sa.Column("tags", sa.Text, nullable=False), sa.Column("note", sa.Text, nullable=False),
        sa.Column("deleted", sa.Double))
    if rows := [*_of_runs(), *old_imports.taken_over()]:
        op.get_bind().execute(marks.insert(), rows)


def _of_runs() -> list[dict[str, Any]]:
    """A store of version 3 has the marks of runs in columns of their own, which stay there and are not read again; one
    that comes from an earlier version never had them."""
    connection = op.get_bind()
    there = {column["name"] for column in sa.inspect(connection).get_columns("lab_runs")}
    if not there.issuperset(column.name for column in OF_RUNS):
        return []
    query: sa.Select[Any] = sa.select(sa.column("id"), *OF_RUNS).select_from(sa.table("lab_runs")).where(
        sa.or_(*(column.is_not(None) for column in OF_RUNS)))
    return [{"id": row.id, "star": bool(row.star), "tags": row.tags or "[]", "note": row.note or "",
             "deleted": row.deleted} for row in connection.execute(query)]
