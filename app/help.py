"""Help: questions with their answers, and the reference: words, metrics, knobs, keys, commands, settings and pages."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import streamlit as st

from app import link, question_link
from app.link import param
from app.page_list import PAGES
from app.shortcuts import shortcuts
from app.theme import symbol
from app.widget_state import widget_state
from labcore.analysis.lessons.folders import lessons
from labcore.catalog import questions
from labcore.catalog.knob import Knob, shown
from labcore.catalog.metrics import METRICS
from labcore.catalog.question import Question
from labcore.catalog.questions import QUESTIONS
from labcore.cli.main import parser
from labcore.runs.spec.run_spec import every_knob
from labcore.workers.settings import SETTINGS


@dataclass(frozen=True)
class Place:
    """The link parameters: the words to search for, and the question that a link opens."""

    find: str = param("")
    question: str = param("", link.one_of(tuple(question.key for question in QUESTIONS)))


WORDS = (
    ("Surrogate", "The objective that is maximised in place of the reward: a function of each token's ratio to the "
                  "policy that sampled it, and of its advantage. The page Surrogate explorer draws it."),
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
    ("Sweep", "One to four knobs at several values, with several seeds, queued as a group."),
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
    ("Recorded", "A run that was made earlier and is replayed; it is not live."),
    ("Imported", "The metrics of another tool, for comparison. They have no checkpoint here."),
    ("Watched", "A run of another trainer, which the lab shows live. The lab cannot control it and has no checkpoint "
                "of it."),
)
CSS = """<style>
.rl-questions{columns:2 26rem;column-gap:3rem;font-size:15px}
.rl-questions section{break-inside:avoid;margin:0 0 1.1rem}
.rl-questions h3{font-size:13px;font-weight:600;letter-spacing:.04em;text-transform:uppercase;opacity:.72;padding:0;
  margin:0 0 .2rem}
.rl-question{border-bottom:1px solid color-mix(in srgb,currentColor 12%,transparent)}
.rl-question summary{cursor:pointer;padding:.4rem 0;line-height:1.4;list-style:none;display:flex;gap:.5rem}
.rl-question summary::-webkit-details-marker{display:none}
.rl-question summary::before{content:"+";flex:none;width:1ch;color:var(--st-primary-color);font-weight:600}
.rl-question[open] summary{font-weight:600}.rl-question[open] summary::before{content:"−"}
.rl-question summary:hover{color:var(--st-primary-color)}
.rl-question summary:focus-visible{outline:2px solid var(--st-primary-color);border-radius:4px}
.rl-question p{margin:0 0 .5rem 1.1rem;line-height:1.55;max-width:68ch}
.rl-question .rl-see{font-size:14px}.rl-see a{margin-right:1rem;white-space:nowrap;
  color:var(--st-primary-color);text-decoration:none}.rl-see a:hover{text-decoration:underline}.rl-see span{opacity:.72}
.rl-answered{padding:.3rem 1rem;margin:.2rem 0 1rem;border-radius:8px;
  background:color-mix(in srgb,var(--st-primary-color) 9%,transparent)}
.rl-answered .rl-question{border:0;font-size:16px}
kbd{font-family:inherit;font-size:13px;white-space:nowrap;padding:1px 7px;border-radius:5px;
  border:1px solid color-mix(in srgb,currentColor 30%,transparent);background:none;color:inherit}
.rl-once{white-space:nowrap}</style>"""
TABLES = """In a table, the arrow keys move and Shift+Space selects the row; its buttons then appear above the table. In
the maze, the arrow keys move the cursor and Enter paints or picks a cell. Tab reaches everything else."""


def page() -> None:
    """The whole page: one search for all that is on it."""
    place, faults = link.read(Place)
    st.html(CSS)
    find = widget_state("help:find", place.find)
    with st.container(horizontal=True, vertical_alignment="center", key="help_head"):
        st.header("Help", anchor=False, width="content")
        st.text_input("Search questions, words, metrics, knobs, keys and settings", find.value, key=find.key,
                      type="search", icon=":material/search:", label_visibility="collapsed", width="stretch",
                      placeholder="My reward does not move, KL, clip, learning rate …",
                      on_change=lambda: link.go(link.written(Place(find.taken().strip()))))
    for fault in faults:
        st.caption(f"The link names an unknown question; all questions are below. ({fault.key})")
    found = _questions(find.value.casefold(), place.question) + _reference(find.value.casefold())
    if not found:
        st.caption("No match. Try one word, such as reward, KL or clip.")


def _questions(sought: str, asked: str) -> int:
    """The question in the link, then all others by topic, or those that match the search. Returns their number."""
    found = [question for question in QUESTIONS if _has(sought, question.ask, question.answer, question.topic)]
    if asked and not sought:
        st.html('<div class="rl-answered">' + "".join(question_html(each, is_open=True) for each in QUESTIONS
                                                      if each.key == asked) + "</div>")
    sections = (f"<section><h3>{html.escape(topic)}</h3>"
                + "".join(question_html(each, is_open=bool(sought) and len(found) == 1) for each in own) + "</section>"
                for topic, own in groupby(found, lambda question: question.topic))
    if found:
        st.html(f'<div class="rl-questions">{"".join(sections)}</div>')
    return len(found)


def question_html(question: Question, *, is_open: bool) -> str:
    """A question that unfolds its answer, with the lesson, the page and the charts to look at."""
    titles = {page.key: page.title for page in PAGES} | {lesson.name: lesson.title for lesson in lessons()[0]}
    to = [(f"lessons?lesson={question.lesson}", f"Lesson: {titles.get(question.lesson, question.lesson)}")
          if question.lesson else None, (question.page, f"Page: {titles[question.page]}") if question.page else None]
    see = "".join(f'<a href="{address}" target="_self">{html.escape(label)}</a>' for address, label in filter(None, to))
    charts = " · ".join(dict.fromkeys(METRICS[key].label for key in question.metrics[:3]))
    see += f"<span>Charts: {html.escape(charts)}</span>" if charts else ""
    return (f'<details class="rl-question" id="{question.key}"{" open" * is_open}><summary>{html.escape(question.ask)}'
            f"</summary><p>{html.escape(question.answer)}</p>" + (f'<p class="rl-see">{see}</p>' if see else "")
            + "</details>")


def _reference(sought: str) -> int:
    """The tables, with the rows that match the search. Returns their number."""
    st.subheader("Reference", anchor=False)
    found = 0
    for title, head, rows in _tables():
        if kept := [row for row in rows if _has(sought, *map(_plain, row))]:
            with st.expander(f"{title} · {len(kept)}", expanded=bool(sought)):
                st.html(f'<div class="rl-scroll">{_table(head, kept)}</div>')
                if title == "Keyboard":
                    st.caption(TABLES)
        found += len(kept)
    if not sought:
        with st.expander("Command line"):
            st.markdown("The same lab without a browser: pages and commands show each other's runs.")
            st.code("python -m labcore COMMAND\n\n" + parser().format_help().partition("COMMAND\n")[2].rstrip(),
                    language=None, wrap_lines=True)
            st.caption("python -m labcore COMMAND --help lists the options of each.")
    return found


def _tables() -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Each table: its title, the names of its columns, and its rows of HTML."""
    ink = html.escape
    yield "Words", ("Word", "Meaning"), [(f"<b>{ink(word)}</b>", ink(meaning)) for word, meaning in WORDS]
    yield "Metrics", ("Metric", "Unit", "Meaning", "Healthy"), [_metric(key) for key in METRICS]
    yield "Knobs", ("Knob", "Default", "Trade-off"), [_knob(knob) for _, knob in sorted(every_knob().items())]
    yield "Keyboard", ("Keys", "Action", "Page"), [
        (f"<kbd>{ink(each.keys)}</kbd>", f"<b>{ink(each.label)}</b> {ink(each.help)}",
         f'<span class="rl-once">{ink(each.page)}</span>') for each in shortcuts()]
    yield "Settings", ("Setting", "Current value", "Meaning"), [
        (f"<code>{each.name}</code>", f"<code>{ink(each.value())}</code>", ink(each.meaning)) for each in SETTINGS]
    yield "Pages", ("Page", "What it is for"), [
        (f'<a href="{"./" if page is PAGES[0] else page.key}" target="_self">{ink(page.title)}</a>', ink(page.words))
        for page in PAGES]


def _has(sought: str, *texts: str) -> bool:
    """Return True if every word that is sought is in the texts."""
    there = " ".join(texts).casefold()
    return all(word in there for word in sought.split())


def _plain(cell: str) -> str:
    """Return the text of a cell, without its tags."""
    return html.unescape(re.sub("<[^>]*>", " ", cell))


def _metric(key: str) -> tuple[str, ...]:
    metric, ink = METRICS[key], html.escape
    name = f"<b>{ink(metric.label)}</b> {symbol(metric.symbol)}<br><code>{ink(key)}</code>"
    return name, ink(metric.page_unit), _asked(ink(metric.help), questions.of_metric(key)), ink(metric.healthy)


def _knob(knob: Knob) -> tuple[str, ...]:
    ink = html.escape
    name = f"<b>{ink(knob.title)}</b><br><code>{ink(knob.key)}</code>"
    return name, ink(shown(knob.default)), _asked(ink(knob.help), questions.of_knob(knob.key))


def _asked(meaning: str, question: Question | None) -> str:
    """A meaning with the question that belongs to it."""
    return f"{meaning} {question_link.as_html(question)}" if question else meaning


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """`rows` of HTML."""
    top = "".join(f"<th>{name}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<table class="rl-table"><tr>{top}</tr>{body}</table>'
