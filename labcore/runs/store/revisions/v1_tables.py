"""The first version: there is none before it, so nothing is to be changed."""

revision = "1"
down_revision = None


def upgrade() -> None:
    pass
