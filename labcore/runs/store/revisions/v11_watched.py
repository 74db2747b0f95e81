"""Version 11 adds the read positions in the files of watched runs."""

import sqlalchemy as sa
from alembic import op

revision = "11"
down_revision = "10"


def upgrade() -> None:
    op.create_table("lab_watched", sa.Column("id", sa.String(100), primary_key=True),
                    sa.Column("place", sa.Text, nullable=False))
