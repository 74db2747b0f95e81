"""Since version 8 a sweep says why nobody decides on its early stopping."""

import sqlalchemy as sa
from alembic import op

revision = "8"
down_revision = "7"


def upgrade() -> None:
    op.add_column("lab_sweeps", sa.Column("fault", sa.Text))
