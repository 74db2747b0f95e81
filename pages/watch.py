"""Watched runs: the runs of other trainers, live."""

from app.watch.page import page

page()
