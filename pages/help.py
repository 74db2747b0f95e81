"""Help: what is where, and the keyboard shortcuts."""

import streamlit as st

st.header("Help", anchor=False)
