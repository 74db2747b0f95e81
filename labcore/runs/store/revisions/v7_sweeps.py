"""Since version 7 sweeps with early stopping have a table."""

import sqlalchemy as sa
from alembic import op

revision = "7"
down_revision = "6"


def upgrade() -> None:
    op.create_table(
        "lab_sweeps", sa.Column("id", sa.String(100), primary_key=True), sa.Column("halving", sa.Text, nullable=False),
        sa.Column("decisions", sa.Integer, nullable=False))
