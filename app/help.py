"""Help: what each page is for, the keyboard, the command line, where files are, and every word with its meaning."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable, Sequence

import streamlit as st

from app import link
from app.lab import lab
from app.link import Param
from app.page_list import PAGES
from app.shortcuts import shortcuts
from app.theme import symbol
from app.widget_state import widget_state
from labcore.analysis.lessons.folders import VARIABLE as LESSONS
from labcore.catalog.knob import Knob, shown
from labcore.catalog.metrics import METRICS
from labcore.cli.main import parser
from labcore.runs.files import storage
from labcore.runs.files.paths import home, read_only
from labcore.runs.spec.run_spec import every_knob
from labcore.runs.store.dialects import shown as place
from labcore.workers.executors import choice
from labcore.workers.sinks import SETTING as LOG

FIND = Param("find", "")
WORDS = (
    ("Surrogate", "The objective that is maximised in place of the reward: a function of each token's ratio to the "
                  "policy that "
     "sampled it, and of its advantage. The page Surrogate explorer draws them; a run's tab Surrogate opens it."),
    ("Marker", "A thin vertical line on every chart where a knob was changed, such as β 0.04 → 0.2. Smoothing never "
               "crosses it."),
    ("Doctor", "The line above a run whose metrics show a problem: what is wrong, the numbers that show it, and a "
               "button with the fix. A healthy run has no such line. For runs of older versions, use python -m "
               "labcore doctor RUN."),
    ("Band", "The 95 % bootstrap interval of the mean over seeds. One seed has no band, because it shows no spread."),
    ("Faint line", "The logged values, behind their exponential moving average."),
    ("Best, last", "The best and the newest value, each of a single step, of the metric in a run's first chart."),
    ("P(A > B)", "The probability that a run of setting A ends above one of B, over seeds. Near 0.5: a tie."),
    ("Seed", "The number from which all random numbers of a run are derived. The same settings and seed give the same "
             "run, bit for bit."),
    ("Fork", "A run that starts from a checkpoint of another run. With common random numbers it uses those of its "
             "parent."),
    ("Sweep", "One or two knobs at several values with several seeds, queued as a group."),
    ("Mix", "Your own named combination of choices (advantage, surrogate, KL, aggregation and so on), saved beside "
            "the named algorithms."),
    ("Step", "A batch and all optimizer updates made on it; in a maze an episode or a sweep."),
    ("Group", "The completions of one prompt, which are compared with each other."),
    ("Advantage", "How much better than expected: blue with a plus, orange with a minus."),
    ("Live, next batch, new run", "When a changed knob takes effect: at the next update, from the next batch, or only "
                                  "in a new run."),
    ("Interrupted", "The lab or the run's process was stopped. Nothing is lost: Resume continues from the last "
                    "checkpoint."),
    ("Diverged", "A number in the training became infinite or NaN. The last good checkpoint is kept."),
    ("Recorded", "A recorded run, not live."),
    ("Imported", "The metrics of another tool, for comparison. They have no checkpoint here."),
)
CSS = """<style>kbd{font-family:inherit;font-size:13px;white-space:nowrap;padding:1px 7px;border-radius:5px;
  border:1px solid color-mix(in srgb,currentColor 30%,transparent);background:none;color:inherit}
  .rl-once{white-space:nowrap}</style>"""
TABLES = """In a table, the arrow keys move and Shift+Space selects the row; its buttons then appear above the table. In
the maze, the arrow keys move the cursor and Enter paints or picks a cell. Tab reaches everything else."""


def pages() -> None:
    """Each page in a line, with its link."""
    for page in PAGES:
        if page.words:
            with st.container(horizontal=True, vertical_alignment="center", gap="small", wrap=False):
                st.page_link(page.script, label=page.title, width=110)
                st.html(f'<span style="font-size:14px">{html.escape(page.words)}</span>', width="stretch")


def keyboard() -> None:
    """The shortcuts as the pages declare them."""
    ink = html.escape
    rows = [(f"<kbd>{ink(each.keys)}</kbd>", f"<b>{ink(each.label)}</b> {ink(each.help)}",
             f'<span class="rl-once">{ink(each.page)}</span>') for each in shortcuts()]
    st.html(f"{CSS}{_table(('Keys', 'Action', 'Page'), rows)}")
    st.caption(TABLES)


def command_line() -> None:
    """The commands as the parser tells them."""
    st.markdown("The same lab without a browser: pages and commands show each other's runs.")
    command_list = parser().format_help().partition("COMMAND\n")[2]
    st.code("python -m labcore COMMAND\n\n" + command_list.rstrip(), language=None, wrap_lines=True)
    st.caption("python -m labcore COMMAND --help lists the options of each.")


def files() -> None:
    """Where the lab keeps what it makes, and what decides it."""
    st.html(_table(("Setting", "Current value", "Meaning"), [
        ("RL_LAB_HOME", _code(str(home())), "Runs with checkpoints and samples, base models, uploads, imports"),
        ("RL_LAB_STORE", _code(place(lab().store.url)), "The database: curves, events, notes"),
        *((name, _code(value), what) for name, value, what in storage.settings()),
        ("RL_LAB_READ_ONLY", _code("1" if read_only() else "not set"),
         "1: the lab is shared for reading; it shows everything and changes nothing"),
        ("RL_LAB_LESSONS", _code(os.environ.get(LESSONS, "") or "not set"), "A folder with your own lessons"),
        ("RL_LAB_LOG", _code(os.environ.get(LOG, "") or "not set"),
         "Tools that also receive the metrics of all runs, separated by commas: tensorboard, wandb, trackio"),
        *((name, _code(value), what) for name, value, what in choice.settings())]))
    st.caption("Nothing leaves this machine unless a setting says so. The page Runs frees disk space; Export makes a "
               "zip of a run.")


def words() -> None:
    """The glossary: words, metrics and knobs, all of them found by one search that the link holds."""
    find = widget_state("help:find", link.get(FIND))
    st.text_input("Search the words, metrics and knobs", find.value, key=find.key, type="search",
                  icon=":material/search:", placeholder="KL, clip, entropy, learning rate …",
                  on_change=lambda: link.put(FIND, find.taken().strip()))
    sought = find.value.casefold()
    tables = (
        ("Glossary", ("Word", "Meaning"), [tuple(map(html.escape, row)) for row in WORDS]),
        ("Metrics", ("Metric", "Unit", "Meaning", "Healthy"), [_metric(key) for key in METRICS]),
        ("Knobs", ("Knob", "Default", "Trade-off"), [_knob(every_knob()[key]) for key in
                                                     sorted(every_knob())]),
    )
    found = [(title, head, [row for row in rows if sought in _plain(row)]) for title, head, rows in tables]
    for title, head, rows in found:
        if rows:
            with st.expander(f"{title} · {len(rows)}", expanded=bool(sought) or title == "Glossary"):
                st.html(f'<div class="rl-scroll">{_table(head, rows)}</div>')
    if not any(rows for _, _, rows in found):
        st.caption("No match.")


def _plain(row: Sequence[str]) -> str:
    """What is read in a row, without its tags."""
    return html.unescape(re.sub("<[^>]*>", " ", " ".join(row))).casefold()


def _metric(key: str) -> tuple[str, ...]:
    metric, ink = METRICS[key], html.escape
    name = f"<b>{ink(metric.label)}</b> {symbol(metric.symbol)}<br><code>{ink(key)}</code>"
    return name, ink(metric.unit), ink(metric.help), ink(metric.healthy)


def _knob(knob: Knob) -> tuple[str, ...]:
    ink = html.escape
    name = f"<b>{ink(knob.title)}</b><br><code>{ink(knob.key)}</code>"
    return name, ink(shown(knob.default)), ink(knob.help)


def _code(text: str) -> str:
    return f"<code>{html.escape(text)}</code>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """`rows` of HTML."""
    top = "".join(f"<th>{name}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<table class="rl-table"><tr>{top}</tr>{body}</table>'
