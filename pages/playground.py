"""Playground: checkpoints answer the same prompt."""

import streamlit as st

st.header("Playground", anchor=False)
