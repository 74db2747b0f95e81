"""Home: a recorded run that one click repeats live, the last run, and a card of each section."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import streamlit as st

from app import listing, session
from app.components.recorded_clip import content, recorded_clip, spec
from app.lab import lab, resumable
from app.page_list import SECTIONS
from app.status import STATES, duration, failed_at_once
from labcore.catalog.kinds import EVERY
from labcore.errors import LabError
from labcore.runs.files.paths import read_only
from labcore.runs.store.rows import ACTIVE, RunRow

RECENT = 100  # finished runs among which the clip's is looked for
CSS = """<style>
.rl-hero h1{font-size:clamp(1.8rem,3.1vw,2.5rem);line-height:1.12;font-weight:700;margin:0;padding:0;
  letter-spacing:-.02em;text-wrap:balance}
.rl-hero p{font-size:1.05rem;line-height:1.5;margin:.7rem 0 0;opacity:.85;text-wrap:pretty}
@media (max-width:640px){.stHorizontalBlock:has(.rl-hero){gap:1rem}}
.rl-card h2{font-size:1.15rem;line-height:1.4;font-weight:600;margin:0;padding:0}
.rl-card p{margin:0 0 .2rem;opacity:.8;font-size:14px;line-height:1.4}
.st-key-cards [data-testid=stPageLink] a{padding:.25rem .4rem;margin:0 -.4rem;align-items:flex-start}
.st-key-cards [data-testid=stPageLink] a>span:first-child{margin-top:2px;color:var(--st-primary-color)}
.st-key-cards [data-testid=stPageLink] p{white-space:normal;font-size:13.5px;line-height:1.35;
  color:color-mix(in srgb,currentColor 78%,transparent)}
.st-key-cards [data-testid=stPageLink] strong{display:block;font-size:15px;font-weight:600;
  color:light-dark(#1B1F24,#E7EAEE)}
</style>"""
HERO = """<div class="rl-hero"><h1>Watch a language model learn by reinforcement</h1>
<p>A small transformer sees shuffled letters and has to write them in order. An exact answer earns 1, any other 0, and
that number is all it learns from.</p>
<p>Train it on your own machine, turn a knob while it runs, and see which token, which group and which term of the
equation moved the curve.</p></div>"""


def top() -> None:
    """The first screen's upper half: words and the button on the left, the clip on the right."""
    st.html(CSS)
    left, right = st.columns([1, 1.5], gap="large", vertical_alignment="center")
    with left:
        st.html(HERO)
        if not read_only():
            _live()
    with right:
        recorded_clip(key="clip")


def _live() -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if st.button("Run it live", type="primary", icon=":material/play_arrow:", shortcut="Ctrl+Enter",
                     key="home:live", help="Run it live on this machine"):
            _run_live()
        st.page_link("../pages/lessons.py", label="Take a lesson first", icon=":material/school:")
    st.caption(how_long(lab().store.runs("finished", limit=RECENT, kind=spec().kind)))


def how_long(finished: Iterable[RunRow]) -> str:
    """The time of the clip's run: on this machine if it was measured, otherwise where it was recorded."""
    if measured := [run.seconds for run in finished if run.spec == spec()]:
        return f"The same run on this machine: about {duration(median(measured))}, as measured here. No download."
    clip = content()
    return f"The same run on this machine. The recorded one took {duration(clip['seconds'])} on {clip['machine']}."


def _run_live() -> None:
    try:
        run_id = lab().launcher.start(spec())
    except LabError as error:
        session.show_error(str(error))
        st.rerun()
    st.switch_page(session.page_of(spec().kind), query_params={"run": run_id})


def cards() -> None:
    """A card of each section, with its pages."""
    with st.container(key="cards"):
        for column, section in zip(st.columns(len(SECTIONS)), SECTIONS, strict=True):
            with column.container(border=True, height="stretch", gap="xsmall"):
                st.html(f'<div class="rl-card"><h2>{section.title}</h2><p>{section.words}</p></div>')
                for page in section.pages:
                    st.page_link(page.script, label=f"**{page.title}** {page.words}", icon=page.icon, width="stretch")


def go_on() -> None:
    """Draw the way back: to the last run, opened or resumed if it was interrupted, and to the running runs."""
    interrupted = [run for run in lab().store.runs("interrupted") if resumable(run)]
    last = next(iter(lab().store.runs(limit=1, own=True)), None)
    offered = bool(interrupted) and not read_only()
    if offered:
        listing.resume_banner(interrupted)
    with listing.entries():
        if last is not None and last.state not in ACTIVE and not offered:
            _last(last)
        listing.going()


def _last(run: RunRow) -> None:
    with listing.entry():
        st.html(listing.words(run, listing.newest([run]).get(run.id), "Your last run: "), width="stretch")
        offered = resumable(run) and not failed_at_once(run.state, run.step) and not read_only()
        if offered and st.button("Resume", icon=":material/play_arrow:", key="home:go_on", help=STATES[run.state][2]):
            listing.resume([run.id])
            st.switch_page(session.page_of(run.spec.kind), query_params={"run": run.id})
        st.page_link(session.page_of(run.spec.kind), label=f"Open in {EVERY[run.spec.kind].label}",
                     icon=":material/open_in_full:", query_params={"run": run.id})
