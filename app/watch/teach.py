"""The page without a watched run: a picture of how one gets here, three ways to send one, and a small program that is
watched at once."""

from __future__ import annotations

import subprocess
import sys

import streamlit as st

from app import theme
from app.lab import errors_shown, lab
from app.session import show_run
from app.watch import picture
from labcore.catalog.kinds import WATCH
from labcore.runs.files.paths import home, read_only
from labcore.workers import process

NEWEST = "watch:newest"  # the run that was there when the page began to wait
DEMO = "labcore.watching.demo"
CSS = """<style>
.rl-teach{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1.15fr);gap:8px 40px;align-items:center}
.rl-teach h1{font-size:clamp(1.7rem,2.8vw,2.3rem);line-height:1.15;font-weight:700;margin:0 0 .5rem;padding:0;
  letter-spacing:-.015em;text-wrap:balance}
.rl-teach p{font-size:1.03rem;line-height:1.5;margin:0;opacity:.86;text-wrap:pretty}
.rl-teach img{width:100%;height:auto;display:block}
.rl-way h2{font-size:1.1rem;font-weight:600;margin:0;padding:0;line-height:1.4}
.rl-way p{font-size:14px;line-height:1.45;margin:0;opacity:.8}
@media (max-width:900px){.rl-teach{grid-template-columns:minmax(0,1fr)}}
@media (min-width:641px){.rl-way{min-height:68px}}
</style>"""
HEAD = """<div><h1>See what your trainer is doing</h1>
<p>TRL, verl, OpenRLHF, Stable-Baselines3 or your own loop trains, here or on another machine. The lab shows it live:
completions with their rewards and advantages, single tokens, curves, and what is wrong. The trainer never waits for the
lab.</p></div>"""


def show() -> None:
    """The page; it opens a run as soon as one appears."""
    st.html(f'{CSS}<div class="rl-teach">{HEAD}{picture.html(theme.ground())}</div>')
    if not read_only():
        _demo()
        st.code(f"export RL_LAB_HOME={home().resolve()}  # where your trainer finds this lab", language="bash")
    for column, (title, words, code, language) in zip(st.columns(3), WAYS, strict=True):
        with column.container(border=True, height="stretch", gap="xsmall"):
            st.html(f'<div class="rl-way"><h2>{title}</h2><p>{words}</p></div>')
            st.code(code, language=language)
    st.session_state.setdefault(NEWEST, _newest())
    st.fragment(_wait, run_every=1.0, key="watch:wait")()


# (title, words, code, language) of each way to send a run.
WAYS = (
    ("TRL: one line", "The callback sends metrics, completions, rewards, advantages and log-probs.",
     "from labcore.watch_trl import LabCallback\n\ntrainer = GRPOTrainer(...,\n    callbacks=[LabCallback()])\n"
     "trainer.train()", "python"),
    ("Your own loop: two calls", "Everything but the step is optional. The client is one file of the standard library, "
     "which can be copied.",
     "from labcore.watch import Watch\n\nwith Watch(\"my run\") as run:\n    run.log(step, {\"reward\": 0.3})\n"
     "    run.rollouts(step, prompts, texts,\n        rewards={\"correct\": scores})", "python"),
    ("Files: no change", "Follows what verl, OpenRLHF, TRL, TensorBoard or Stable-Baselines3 write already.",
     "# while the trainer writes there\nrl-lab watch path/to/outputs", "bash"),
)


def _demo() -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.button("Watch a small program", type="primary", icon=":material/play_arrow:", key="watch:demo",
                  on_click=_start_demo)
        st.caption(f"A real policy gradient on four bandits in plain Python, 15 seconds: `python -m {DEMO}`. Or start "
                   "a trainer of your own: tell it where this lab is, then choose a way below.", width="stretch")


def _start_demo() -> None:
    subprocess.Popen((sys.executable, "-m", DEMO), env=process.environment(lab().store.url), stdin=subprocess.DEVNULL,
                     start_new_session=True)


def _newest() -> str:
    found = lab().store.runs(limit=1, kind=WATCH.key)
    return found[0].id if found else ""


@errors_shown()
def _wait() -> None:
    """Open the first run that appears after the page was opened."""
    newest = _newest()
    if newest and newest != st.session_state[NEWEST]:
        show_run(newest, WATCH.key)
        st.rerun()
    st.html('<div class="rl-status" role="status"><span class="rl-dot" style="background:#56B4E9"></span>'
            "<span><b>Waiting</b> for the first line of a run, which then opens here by itself.</span></div>")
