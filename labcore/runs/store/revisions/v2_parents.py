"""Since version 2 forks know their parent in a column of its own, and runs their sweep."""

import json

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"

runs = sa.table("lab_runs", sa.column("id"), sa.column("spec"), sa.column("parent"))


def upgrade() -> None:
    op.add_column("lab_runs", sa.Column("parent", sa.String(100)))
    op.add_column("lab_runs", sa.Column("sweep", sa.String(100)))
    connection = op.get_bind()
    for run_id, spec in connection.execute(sa.select(runs.c.id, runs.c.spec)).all():
        if parent := json.loads(spec).get("parent"):
            connection.execute(runs.update().where(runs.c.id == run_id), {"parent": parent[0]})
