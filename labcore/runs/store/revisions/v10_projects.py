"""Since version 10 runs may belong to a project, and sweeps may have a name."""

import sqlalchemy as sa
from alembic import op

revision = "10"
down_revision = "9"


def upgrade() -> None:
    op.add_column("lab_marks", sa.Column("project", sa.Text))
    op.add_column("lab_sweeps", sa.Column("name", sa.Text))
