"""Alembic's revision scripts: what each version of the store changed. `migrations` runs those that a store lacks.

A script describes the tables as they were in its version, never by `schema`, which later versions change.
"""
