"""Since version 9 a run says for one of how many places it waits, and whether early stopping asked it to stop."""

import sqlalchemy as sa
from alembic import op

revision = "9"
down_revision = "8"

runs = sa.table("lab_runs", sa.column("state"), sa.column("message"), sa.column("stops_early", sa.Boolean))


def upgrade() -> None:
    op.add_column("lab_runs", sa.Column("places", sa.Integer))  # the next lab writes it of each run that waits
    op.add_column("lab_runs", sa.Column("stops_early", sa.Boolean))
    op.get_bind().execute(runs.update().where(runs.c.state == "stopped", runs.c.message.startswith("Stopped early")),
                          {"stops_early": True})
