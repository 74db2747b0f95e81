"""Draw Foundations: a list of contents, and one open section: words beside a picture; on a phone the picture comes
first.

Only the open section is mounted, so the page costs the same however many there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from app import link, session
from app.foundations.sections import BY_KEY, SECTIONS, Section
from app.link import param
from app.tokens import literal

PAGE = "../pages/foundations.py"
CSS = """<style>
.st-key-contents{gap:.1rem .2rem;padding-bottom:.35rem;
  border-bottom:1px solid color-mix(in srgb,currentColor 12%,transparent)}
.st-key-contents a{padding:.15rem .55rem}
.st-key-contents a p{font-size:14px;font-weight:400}
.st-key-contents a{background:none}
.st-key-contents .st-key-here a{background:color-mix(in srgb,var(--st-primary-color,#0072B2) 14%,transparent)}
.st-key-contents .st-key-here a p{font-weight:600}
.st-key-section{display:grid;gap:.55rem 2.2rem;grid-template-columns:minmax(0,1fr) minmax(0,1.75fr);
  grid-template-rows:auto 1fr;grid-template-areas:"head picture" "words picture"}
.st-key-section>:has(>.st-key-head){grid-area:head}
.st-key-section>:has(>.st-key-picture){grid-area:picture}
.st-key-section>:has(>.st-key-words){grid-area:words}
.st-key-section .st-key-words :is(p,li){font-size:15px}
.st-key-section .st-key-head p{font-size:17px;line-height:1.5}
.st-key-section .st-key-head h3{padding-top:0}
@media (max-width:900px){.st-key-section{grid-template:"head" "picture" "words"/minmax(0,1fr)}}
.st-key-words a p{white-space:normal}
@media (max-width:640px){.st-key-contents a{padding:0 .4rem}.st-key-contents a p{font-size:13px}}
</style>"""


@dataclass(frozen=True)
class Place:
    """The link parameters of the page: the open section, by its key."""

    section: str = param(SECTIONS[0].key, link.one_of(BY_KEY))


def page() -> None:
    """The whole page."""
    place, faults = link.read(Place)
    link.write()
    session.problem()
    for fault in faults:
        st.warning(literal(fault.sentence), icon=":material/error:")
    st.html(CSS)
    section = BY_KEY[place.section]
    _contents(section)
    with st.container(key="section"):
        with st.container(key="head"):
            st.subheader(section.title, anchor=False)
            st.markdown(section.sentence)
            st.latex(section.latex)
        with st.container(key="picture"):
            section.picture(data=dict(section.data), key=f"foundations:{section.key}")
            if section.below:
                section.below()
        with st.container(key="words"):
            _words(section)


def _contents(section: Section) -> None:
    """All sections in order, each a link."""
    with st.container(horizontal=True, key="contents"):
        for number, each in enumerate(SECTIONS, start=1):
            with st.container(key="here" if each is section else f"section_{each.key}", width="content"):
                _link(each, f"{number} {each.title}")


def _link(section: Section, label: str, icon: str | None = None) -> None:
    st.page_link(PAGE, label=label, icon=icon, query_params={"section": section.key})


def _words(section: Section) -> None:
    """Things to try, the meaning of the letters, links to where it is used, and to the sections before and after."""
    st.markdown("**Try it**\n\n" + "\n".join(f"1. {each}" for each in section.tries))
    st.markdown("**The letters**\n\n" + "\n".join(f"* ${symbol}$: {words}" for symbol, words in section.symbols))
    st.markdown("**Where this is used**")
    for each in section.returns:
        st.page_link(f"../pages/{each.page}.py", label=each.words, icon=":material/arrow_forward:",
                     query_params=dict(each.query))
    at = SECTIONS.index(section)
    with st.container(horizontal=True, horizontal_alignment="distribute"):
        if at:
            _link(SECTIONS[at - 1], f"Back: {SECTIONS[at - 1].title}", ":material/chevron_left:")
        if at + 1 < len(SECTIONS):
            _link(SECTIONS[at + 1], f"Next: {SECTIONS[at + 1].title}", ":material/chevron_right:")
