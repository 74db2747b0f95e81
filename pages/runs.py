"""All runs: open, resume, delete."""

import streamlit as st

from app import listing, session
from app.lab import lab

st.header("Runs", anchor=False)
session.problem()
listing.resume_banner(lab().store.runs("interrupted"))
listing.table()
