"""The page without a watched run: three ways to send one, and a small program that is watched at once."""

from __future__ import annotations

import subprocess
import sys

import streamlit as st

from app.lab import errors_shown, lab
from app.session import show_run
from labcore.catalog.kinds import WATCH
from labcore.runs.files.paths import home, read_only
from labcore.workers import process

NEWEST = "watch:newest"  # the run that was there when the page was opened
DEMO = "labcore.watching.demo"
CSS = """<style>
.rl-teach h1{font-size:clamp(1.5rem,2.4vw,2rem);line-height:1.15;font-weight:700;margin:.2rem 0 .3rem;padding:0;
  letter-spacing:-.01em}
.rl-teach p{font-size:1.02rem;line-height:1.5;margin:0;max-width:64ch;opacity:.86}
.rl-way h2{font-size:1.08rem;font-weight:600;margin:0;padding:0;line-height:1.4}
.rl-way p{font-size:14px;line-height:1.45;margin:0;opacity:.8}
</style>"""
HEAD = """<div class="rl-teach"><h1>See what your trainer is doing</h1>
<p>TRL, verl, OpenRLHF, Stable-Baselines3 or your own loop trains; the lab shows it live: completions with their rewards
and advantages, single tokens, curves, and what is wrong. The trainer never waits for the lab.</p></div>"""


def show() -> None:
    """The page; it opens a run as soon as one appears."""
    st.html(CSS + HEAD)
    if not read_only():
        _demo()
    for column, (title, words, code, language) in zip(st.columns(3), ways(), strict=True):
        with column.container(border=True, height="stretch", gap="xsmall"):
            st.html(f'<div class="rl-way"><h2>{title}</h2><p>{words}</p></div>')
            st.code(code, language=language, wrap_lines=True)
    st.caption("The trainer needs no package of the lab: `labcore/watch.py` is one file of the standard library, which "
               "can be copied. To send from another machine, see docs/watch.md.")
    st.session_state[NEWEST] = _newest()
    st.fragment(_wait, run_every=1.0, key="watch:wait")()


def ways() -> tuple[tuple[str, str, str, str], ...]:
    """(title, words, code, language) of each way to send a run."""
    place = "" if read_only() else f'"{home().resolve()}"'
    return (
        ("TRL, one line", "A callback sends metrics, completions, rewards, advantages and log-probs.",
         f"from labcore.watch_trl import LabCallback\n\ntrainer = GRPOTrainer(..., callbacks=[\n    LabCallback(home={place})])",
         "python"),
        ("Files, no change", "Logs that verl, OpenRLHF, TRL, TensorBoard or Stable-Baselines3 write already are followed "
         "while they grow.", "rl-lab watch path/to/outputs", "bash"),
        ("Your own loop", "Everything but the step is optional.",
         f"from labcore.watch import Watch\n\nwith Watch(\"my run\", home={place}) as run:\n"
         "    for step in range(1, 101):\n        run.log(step, {\"loss\": loss, \"reward\": reward})\n"
         "        run.rollouts(step, prompts, texts,\n                     rewards={\"correct\": scores})", "python"))


def _demo() -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.button("Watch a small program", type="primary", icon=":material/play_arrow:", key="watch:demo",
                  on_click=_start_demo, help="It trains four bandits by policy gradients in plain Python")
        st.caption(f"A real policy gradient of 150 steps, in plain Python, a quarter of a minute. "
                   f"The same as `python -m {DEMO}`.")


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
    if newest and newest != st.session_state.get(NEWEST):
        show_run(newest, WATCH.key)
        st.rerun()
    st.html('<div class="rl-status" role="status"><span class="rl-dot" style="background:#56B4E9"></span>'
            "<span><b>Waiting</b> for the first line of a run. It opens here by itself.</span></div>")
