"""Compare: runs side by side."""

import streamlit as st

st.header("Compare", anchor=False)
