"""The page without a watched run: a picture of how watching works, three ways to send a run, and a button that starts a
small demo."""

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

NEWEST = "watch:newest"  # the newest run when the page started to wait
DEMO = "labcore.watch.demo"
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
<p>Train with TRL, verl, OpenRLHF, Stable-Baselines3 or your own loop, here or on another machine. The lab shows the run
live: curves, completions with their rewards and advantages, single tokens, and warnings. The trainer never waits for
the lab.</p></div>"""


def show() -> None:
    """Show the page; it opens a run as soon as one appears."""
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


# The ways to send a run: (title, description, code, language).
WAYS = (
    ("TRL: one line", "The callback sends metrics, completions, rewards, advantages and log-probs.",
     "from labcore.watch.trl import LabCallback\n\ntrainer = GRPOTrainer(...,\n    callbacks=[LabCallback()])\n"
     "trainer.train()", "python"),
    ("Your own loop: two calls", "Everything but the step is optional. The client is a single file without "
     "dependencies, so you can copy it.",
     "from labcore.watch import Watch\n\nwith Watch(\"my run\") as run:\n    run.log(step, {\"reward\": 0.3})\n"
     "    run.rollouts(step, prompts, texts,\n        rewards={\"correct\": scores})", "python"),
    ("Log files: no change", "The lab reads the logs that verl, OpenRLHF, TRL, ms-swift, TensorBoard or "
     "Stable-Baselines3 write.",
     "# while the trainer runs\nrl-lab watch path/to/outputs", "bash"),
)


def _demo() -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.button("Watch a demo run", type="primary", icon=":material/play_arrow:", key="watch:demo",
                  on_click=_start_demo)
        st.caption(f"A policy gradient on four bandits in plain Python, 15 seconds: `python -m {DEMO}`. Or start your "
                   "own trainer: set the variable below, then choose one of three ways.", width="stretch")


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
            "<span><b>Waiting</b> for a run. It opens here as soon as the trainer sends its first line.</span></div>")
