"""The page before a run: its steps, drawn with the chosen task's own example, or the task's world itself."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping

import streamlit as st

from app import memory
from app.draft import Draft
from app.theme import symbol
from app.tokens import readable
from app.training import mix, step_time
from app.training.feed import LARGE
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.choices import ADVANTAGE, PAIRS, PREFERENCE_LOSS, SFT_LOSS, TEACHER_CONTEXT, chosen, written_share
from labcore.catalog.families.distillation import SELF
from labcore.catalog.kinds import task as task_of
from labcore.catalog.knob import Value
from labcore.catalog.panels import PANELS
from labcore.catalog.right import in_run
from labcore.catalog.summary import summary_of
from labcore.catalog.task import Task
from labcore.errors import LabError
from labcore.runs.files.paths import read_only
from labcore.tasks.file_statistics import answer_of
from labcore.tasks.goal import example, wrong
from labcore.tasks.task import Pair, Problem

LONGEST = 60  # characters of a text of the user's file

CSS = """
<style>
.rl-steps{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:14px;margin:.2rem 0 .6rem}
.rl-steps section{border:1px solid color-mix(in srgb,currentColor 14%,transparent);border-radius:10px;padding:14px 16px;
  min-width:0}
.rl-steps h4{font-size:15px;font-weight:600;margin:0 0 4px;padding:0}.rl-steps p{font-size:14px;margin:0;opacity:.8}
.rl-steps .rl-mono{font-size:15px;margin:10px 0 2px;line-height:1.7;overflow-wrap:anywhere}
@media (max-width:640px){.rl-steps{grid-template-columns:minmax(0,1fr)}}
</style>"""
# The frames of charts that have nothing to draw yet.
TILES = """
<style>
.rl-tiles{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:10px 18px;margin-top:.2rem}
.rl-tiles div{min-width:0}.rl-tiles b{font-size:14px;font-weight:600}.rl-tiles small{font-size:12px;opacity:.72}
.rl-tiles .rl-frame{height:104px;border-bottom:1px solid color-mix(in srgb,currentColor 30%,transparent);
  background:repeating-linear-gradient(color-mix(in srgb,currentColor 11%,transparent) 0 1px,transparent 1px 35px)}
@media (max-width:640px){.rl-tiles{grid-template-columns:minmax(0,1fr)}}
</style>"""


def picture(draft: Draft, scene: Callable[[], None] | None = None) -> None:
    """Three steps, or the `scene` of the kind, and the frames of the charts to come."""
    row, task, fault = draft.row, draft.task_row, draft.fault()
    ready = f"<b>Ready.</b> Press <b>Run</b>. {html.escape(summary_of(row, draft.values))}"
    missing = f"<b>Not ready yet.</b> {html.escape(fault)}"
    caution = " ".join(filter(None, (draft.caution(), mix.of_numbers(draft), memory.caution(draft))))
    if read_only():
        ready = "<b>Shared for reading.</b> Choose a run above."
    elif caution:
        ready = f"<b>Ready, with warnings.</b> {html.escape(caution)}"
    colour = "#E69F00" if fault or caution else "#009E73"
    st.html(f'<div class="rl-status"><span class="rl-dot" style="background:{colour}"></span>'
            f"<span>{missing if fault else ready}</span></div>")
    step_time.show(draft)
    mix.details(draft)
    if scene:
        scene()
        with st.container(border=True, key="rule", gap="xsmall"):
            st.markdown("**How it learns**")
            st.latex(row.latex)
    sections = [] if scene else [_section(*step) for step in _steps(row, task, _example(draft), draft.values)]
    steps = f'<div class="rl-steps">{"".join(sections)}</div>' if sections else ""
    st.html(f"{CSS}{steps}{frames(row, task, draft.values)}")
    st.caption(f"Watch: {row.watch}")


def frames(row: Algorithm, task: Task, values: Mapping[str, Value]) -> str:
    """The empty frames of the large charts that a run with these knobs will have, as HTML."""
    panels = [PANELS[key] for key in row.charts(task)[:LARGE]]
    tiles = ""
    for panel in panels:
        first = in_run(panel.metrics[0], row, task, values)
        title = first.label if panel.key in ("reward", "exact_match") else panel.title
        tiles += (f"<div><b>{title}</b> <i>{symbol(first.symbol)}</i> <small>{first.page_unit}</small>"
                  '<div class="rl-frame"></div></div>')
    return f'{TILES}<div class="rl-tiles">{tiles}</div>'


def _section(title: str, example: str, words: str) -> str:
    return f'<section><h4>{title}</h4><div class="rl-mono">{example}</div><p>{html.escape(words)}</p></section>'


def _example(draft: Draft) -> tuple[str, str, str]:
    """A prompt with a right and a wrong answer, as in the sentence above; from the user's file if there is one."""
    path, declared = draft.fields["data"].get(draft.task_row.data), tuple(draft.task_row.example.split(" → "))
    made = path or len(declared) < 3
    texts = _texts(draft.task_row.key, draft.kind.key, path, draft.of_task(), draft.fields["seed"]) if made else ()
    texts = texts or declared
    if len(texts) == 3:
        return texts
    prompt, right = (*texts, "…")[:2]
    slip = right[:-2] + right[:-3:-1]
    return prompt, right, slip if right.isalnum() and slip != right else "…"


@st.cache_data(show_spinner=False, max_entries=64)
def _texts(task_key: str, kind: str, path: str | None, knobs: dict[str, Value], seed: int) -> tuple[str, ...]:
    """The texts of the task's example; empty if the task cannot be made, which the page reports elsewhere. The cache is
    safe for files, because an upload's path holds the hash of its content."""
    try:
        task = task_of(task_key, kind)
        row, _ = example(task, knobs, path, seed)
        slip = wrong(task, knobs, row) if isinstance(row, Problem) and not path and not task.data else ""
    except LabError:
        return ()
    if isinstance(row, Pair):
        return row.prompt, row.chosen, row.rejected
    return (row.prompt, answer_of(row), *([slip] if slip else []))


def _cut(text: str) -> str:
    return readable(text if len(text) <= LONGEST else f"{text[:LONGEST - 1].rstrip()}…")


def _compared(with_reference: bool) -> tuple[str, str]:
    """The quantity that an algorithm of preferences compares, as HTML, and in words."""
    if with_reference:
        return ("log π/π<sub>ref</sub> of each<br>&nbsp;<br>&nbsp;",
                "How much likelier is each side under the policy than under the reference?")
    return "log π of each, per token<br>&nbsp;<br>&nbsp;", "How likely is each side under the policy?"


def trained(values: Mapping[str, Value]) -> str:
    """The target of a preference loss, and whether anything is sampled for it, in words."""
    losses = {loss.trains for loss in chosen(PREFERENCE_LOSS, values)}
    pairs = losses - {"answer", "opponent"}
    what = ("Each side is trained by itself" if "sides" in losses else "The margin between the sides and the "
            "chosen side are trained" if pairs - {"margin"} else "The margin between the sides is trained")
    if "answer" in losses:
        what = f"{what}, and the task's own answer is imitated" if pairs else "The task's own answer is imitated"
    elif pairs == {"margin"}:
        what = "Only the margin between the sides is trained"
    if "opponent" in losses:
        what += ", and the reference's completion is made less likely"
    return f"{what}; {'the next pairs are sampled' if _each_step(values) else 'nothing is sampled'}."


def _each_step(values: Mapping[str, Value]) -> bool:
    return any(source.each_step for source in chosen(PAIRS, values))


def _graded(values: Mapping[str, Value], plays: bool) -> tuple[str, str, str]:
    """The card about grading in the online loop: title, example and words."""
    if any(each.teacher for each in chosen(ADVANTAGE, values)):
        says = "A frozen model grades each token by its own probability. The reward is logged but not used."
        if values.get("teacher") == SELF:
            says = (f"The teacher is the model itself, which reads {chosen(TEACHER_CONTEXT, values)[0].label}. "
                    "It grades each token by its own probability.")
        return ("2 · The teacher grades each token", '<span class="rl-pos">+ likelier under the teacher</span><br>'
                '<span class="rl-neg">− less likely under it</span><br>&nbsp;',
                says)
    scored, scorer = ("Episodes", "The environment") if plays else ("Answers", "A verifier")
    return (f"2 · {scored} are scored", '<span class="rl-pos">+ above the others</span><br>'
            '<span class="rl-neg">− below the others</span><br>&nbsp;',
            f"{scorer} gives a reward. A reward above the expected one is a positive advantage.")


def _written(values: Mapping[str, Value]) -> str:
    """Who writes the answers of the supervised loop; empty where all are given."""
    share = float(values.get("on_policy_share", 0))
    rest = "the teacher" if values.get("answers") == "teacher" else "" if share == 1 else "the task"
    names = " and ".join(filter(None, ("the policy itself" if share else "", rest)))
    return f"Prompts with answers by {names}." if written_share(values) else ""


def _next_tokens(values: Mapping[str, Value]) -> tuple[str, str, str]:
    """The card on the comparison at each token in the supervised loop: title, example and words."""
    if any(each.teacher for each in chosen(SFT_LOSS, values)):
        return ("2 · Distributions are compared", "π<sub>T</sub>(next token)<br>π(next token)<br>&nbsp;",
                "How far is the policy's next-token distribution from the teacher's?")
    return "2 · Next tokens", "−log π(token)<br>&nbsp;<br>&nbsp;", "How surprised is the model by each token?"


def _steps(row: Algorithm, task: Task, example: tuple[str, str, str],
           values: Mapping[str, Value]) -> list[tuple[str, str, str]]:
    """(title, example as HTML, words) of each part of the algorithm's loop, for the `example`."""
    asked, right, wrong = map(_cut, example)
    good, bad = f'{right} <span class="rl-pos">✓</span>', f'{wrong} <span class="rl-muted">✗</span>'
    pairs = ("Pairs are made", "The reference model answers; of two answers the better one is chosen.")
    if _each_step(values):
        pairs = ("Pairs are made", "The policy answers at every step; of two answers the better one is chosen.")
    taught, until = "Prompts with the right answers.", "Until its sampled answers reach the target."
    if task.pairs and task.verifiable and row.loop == "reward_model":
        pairs = ("Pairs of the task", "Two answers to each prompt, one of them chosen, with label noise.")
    if not task.verifiable:  # the user's file says which answer is right
        pairs = ("Pairs are read", "Each line of your file is a pair: a prompt, an answer that was chosen and one that "
                 "was rejected.")
        taught, until = "Each line of your file has a prompt and its chosen answer.", "Until its steps are done."
    loops = {
        "online": ((f"1 · It {'plays' if task.has_turns else 'answers'}", f"{asked}<br>{good}<br>{bad}",
                    "The model plays several episodes from the same start." if task.has_turns else
                    "The model writes several answers to each prompt."),
                   _graded(values, task.has_turns),
                   ("3 · It learns", f"{good} likelier<br>{bad} less likely<br>&nbsp;",
                    "Log-probabilities move with the advantage, and the next batch is sampled.")),
        "preference": ((f"1 · {pairs[0]}", f"{asked}<br>{good}<br>{bad}", pairs[1]),
                       ("2 · Sides are compared", *_compared("reference" in row.models)),
                       ("3 · It learns", f"{good} raised<br>{bad} lowered<br>&nbsp;",
                        trained(values) if row.loop == "preference" else "")),
        "reward_model": ((f"1 · {pairs[0]}", f"{asked}<br>{good}<br>{bad}", pairs[1]),
                         ("2 · Sides are scored", "P(chosen) = σ(r<sub>w</sub> − r<sub>l</sub>)<br>&nbsp;<br>&nbsp;",
                          "A copy of the model with one output gives each side a number."),
                         ("3 · It learns", f"{good} scored higher<br>{bad} scored lower<br>&nbsp;", "RL can then use "
                          "the scores as its rewards (knob Reward source).")),
        "prm": (("1 · It answers", f"{asked}<br>{good}<br>{bad}", "The model writes answers, or your file has them. "
                 "Each step of an answer has a label."),
                ("2 · Steps are scored", "P(step is right)<br>&nbsp;<br>&nbsp;", "A copy of the model with two outputs "
                 "gives the end of each step a score from 0 to 1."),
                ("3 · It learns", '<span class="rl-pos">right steps</span> scored higher<br><span class="rl-neg">wrong '
                 "steps</span> scored lower<br>&nbsp;", "RL can then use the scores as rewards of steps (knob Reward "
                 "source).")),
        "sft": (("1 · Examples", f"{asked}<br>{good}<br>&nbsp;", _written(values) or taught),
                _next_tokens(values),
                ("3 · It learns", f"{good} likelier<br>&nbsp;<br>&nbsp;", until)),
    }
    return list(loops[row.loop])
