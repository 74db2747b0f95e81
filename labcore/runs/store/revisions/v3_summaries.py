"""Since version 3 what a list shows of a run is kept with it."""

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"


def upgrade() -> None:
    op.add_column("lab_runs", sa.Column("digest", sa.Text))
