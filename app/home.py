"""Home: what the lab is, a recorded run that one click repeats live, three doors, and the last run."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import streamlit as st

from app import listing, session
from app.components.recorded_clip import content, recorded_clip, spec
from app.lab import lab
from app.page_list import PAGES
from app.status import STATES, duration, failed_at_once
from labcore.catalog.kinds import KINDS
from labcore.errors import LabError
from labcore.runs.files.paths import read_only
from labcore.runs.store.rows import ACTIVE, RESUMABLE, RunRow

RECENT = 100  # finished runs among which the clip's is looked for
CSS = """<style>
.rl-hero h1{font-size:clamp(1.8rem,3.3vw,2.6rem);line-height:1.12;font-weight:700;margin:0;padding:0;
  letter-spacing:-.02em;text-wrap:balance}
.rl-hero p{font-size:1.05rem;line-height:1.5;margin:.7rem 0 0;opacity:.85}
.st-key-doors{margin-top:.5rem}
</style>"""
HERO = """<div class="rl-hero"><h1>Watch a language model learn by reinforcement</h1>
<p>A small transformer learns on your own machine, live. Move a knob while it runs, and see which token, which group and
which term of the equation made the curve turn.</p></div>"""

# (title, icon, words); the list of pages says which are behind it
DOORS = (
    ("Learn", ":material/school:", "Entropy, KL and estimators as pictures that you can drag; lessons where you "
                                   "predict a result, then run it; values and policies in worlds that you can see."),
    ("Play", ":material/tune:", "Train a language model, change its knobs while it learns, then ask it questions; or "
                                "train one so small that every number is known exactly."),
    ("Compare", ":material/query_stats:", "Which algorithm or knob is better, and how sure is that? Curves over seeds, "
     "sweeps and forks."),
)


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
    if st.button("Run it live", type="primary", icon=":material/play_arrow:", shortcut="Ctrl+Enter",
                 key="home:live", help="Run it live on this machine"):
        _run_live()
    st.caption(how_long(lab().store.runs("finished", limit=RECENT, kind=spec().kind)))


def how_long(finished: Iterable[RunRow]) -> str:
    """What the clip's run takes: here, where it was made here, else where it was recorded."""
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


def doors() -> None:
    """Three ways in."""
    with st.container(key="doors"):
        for column, (title, icon, words) in zip(st.columns(len(DOORS)), DOORS, strict=True):
            with column.container(border=True, height="stretch", gap="xsmall"):
                st.markdown(f"**{icon} {title}**")
                st.caption(words)
                with st.container(horizontal=True, gap="small"):
                    for page in PAGES:
                        if page.door == title:
                            st.page_link(page.script, label=page.named or page.title, icon=":material/arrow_forward:")


def go_on() -> None:
    """The way back: to the last run, opened or resumed where it was cut short, and to those that go."""
    interrupted = lab().store.runs("interrupted")
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
        resumable = run.state in RESUMABLE and not failed_at_once(run.state, run.step) and not read_only()
        if resumable and st.button("Resume", icon=":material/play_arrow:", key="home:go_on", help=STATES[run.state][2]):
            listing.resume([run.id])
            st.switch_page(session.page_of(run.spec.kind), query_params={"run": run.id})
        st.page_link(session.page_of(run.spec.kind), label=f"Open in {KINDS[run.spec.kind].label}",
                     icon=":material/open_in_full:", query_params={"run": run.id})
