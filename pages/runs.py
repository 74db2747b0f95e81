"""Runs: all of them, found, compared, kept and cleaned up."""

from app import listing, session
from app.lab import lab
from app.runs.page import page

session.problem()
listing.resume_banner(lab().store.runs("interrupted"))
page()
