"""Help: the pages, the keyboard, every word with its meaning, the command line and the files."""

import streamlit as st

from app import help

left, right = st.columns(2, gap="large")
with left:
    st.subheader("Pages", anchor=False)
    help.pages()
with right:
    st.subheader("Keyboard", anchor=False)
    help.keyboard()
st.subheader("Words", anchor=False)
help.words()
left, right = st.columns([1.6, 1], gap="large")
with left:
    st.subheader("Command line", anchor=False)
    help.command_line()
with right:
    st.subheader("Files", anchor=False)
    help.files()
