"""Runs: all of them, found, compared, kept and cleaned up."""

from app import listing, runs_page, session
from app.lab import lab

session.problem()
listing.resume_banner(lab().store.runs("interrupted"))
runs_page.page()
