"""The lab's entry: `streamlit run app/main.py`. The lab opens with the server, not with the first page."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[1])
if ROOT not in sys.path:  # `streamlit run` puts only app/ on the path
    sys.path.insert(0, ROOT)

import streamlit as st  # noqa: E402

from app import lab  # noqa: E402


@asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[None]:
    """From here the workers' parent loads torch, while the browser still starts; with the server the lab closes."""
    lab.warm_up()
    yield
    lab.lab.clear()


app = st.App("navigation.py", lifespan=lifespan)
