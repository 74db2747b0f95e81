"""Python as the page shows it. `st.code` highlights in the browser, half a second for the functions of one algorithm,
and again with every refresh of a run that goes."""

from __future__ import annotations

import html
from functools import cache

import streamlit as st
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, String

KINDS = {Keyword: "keyword", Comment: "comment", String: "string", Number: "number", Name.Function: "name"}


def show(text: str) -> None:
    """Draw the code; its lines wrap."""
    st.html(f'<pre class="rl-code"><code>{coloured(text)}</code></pre>')


@cache
def coloured(text: str) -> str:
    """The code as safe HTML, each token of `KINDS` in an element of that class.

    >>> coloured("return '<b>'")
    '<b class="keyword">return</b> <b class="string">&#x27;&lt;b&gt;&#x27;</b>'
    """
    return "".join(_element(kind, html.escape(written)) for kind, written in _tokens(text)).strip("\n")


def _tokens(text: str) -> list[tuple[str, str]]:
    """(kind or "", text) of the code's stretches of one kind."""
    found: list[tuple[str, str]] = []
    for token, written in PythonLexer(stripnl=False).get_tokens(text):
        kind = next((name for type_, name in KINDS.items() if token in type_), "")
        if found and found[-1][0] == kind:
            found[-1] = kind, found[-1][1] + written
        else:
            found.append((kind, written))
    return found


def _element(kind: str, text: str) -> str:
    return f'<b class="{kind}">{text}</b>' if kind else text
