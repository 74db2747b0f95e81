"""Since version 6 the highest number that a run was given is kept, whatever becomes of the run."""

import sqlalchemy as sa
from alembic import op

revision = "6"
down_revision = "5"

meta = sa.table("lab_meta", sa.column("key"), sa.column("value"))
runs = sa.table("lab_runs", sa.column("number"))


def upgrade() -> None:
    connection = op.get_bind()
    highest = connection.scalar(sa.select(sa.func.max(runs.c.number))) or 0
    connection.execute(meta.insert(), {"key": "number", "value": str(highest)})
