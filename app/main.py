"""The lab's entry: `streamlit run app/main.py`. The lab opens with the server, not with the first page."""

import sys
from contextlib import suppress
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[1])
if ROOT not in sys.path:  # `streamlit run` puts only app/ on the path
    sys.path.insert(0, ROOT)

from labcore.errors import LabError
from labcore.runs.files.paths import read_only
from labcore.workers import process

with suppress(LabError, OSError):  # the page says what is wrong
    if not read_only():
        process.begin()  # it loads torch while this process loads the rest

import streamlit as st

from app import incoming, login, serving

login.begin()

app = st.App("navigation.py", lifespan=serving.lifespan, middleware=serving.MIDDLEWARE, routes=incoming.routes())
