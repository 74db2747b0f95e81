"""Since version 5 runs are numbered in the order in which they were made."""

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"

runs = sa.table("lab_runs", sa.column("id"), sa.column("created"), sa.column("number"))


def upgrade() -> None:
    op.add_column("lab_runs", sa.Column("number", sa.Integer))
    connection = op.get_bind()
    ids = connection.execute(sa.select(runs.c.id).order_by(runs.c.created, runs.c.id)).scalars().all()
    for number, run_id in enumerate(ids, start=1):
        connection.execute(runs.update().where(runs.c.id == run_id), {"number": number})
