"""Best of n: many answers of the first model to the prompt, ranked by a reward model, beside the verifier's verdict."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app import jobs, naming
from app.lab import lab
from app.llm.chain import SOURCES
from app.llm.process_tab import step_card
from app.on_request import requested
from app.playground.models import titles
from app.playground.place import Place, go
from app.session import runs_of
from app.tokens import readable
from app.widget_state import widget_state
from labcore.catalog.amounts import percent
from labcore.catalog.families.process import OF_PUBLISHED, PUBLISHED, RANKINGS, SEPARATOR
from labcore.runs.jobs import Spec
from labcore.runs.models import with_checkpoint
from labcore.runs.spec.model_names import is_published, members, parse, pinned_reward_models
from labcore.runs.spec.run_spec import RunSpec

WORDS = {"lowest": "Lowest score of its steps", "product": "Product of the scores", "last": "Score of the last step"}
SHORT = {"lowest": "lowest score", "product": "product", "last": "last score"}
KEY = ("Each step is coloured by its score, blue above ½ and orange below. A wavy line: the verifier says that the "
       "step is wrong. ⏎ is the end of the answer.")
CSS = """
<style>
.rl-best tr.rl-won>td{background:color-mix(in srgb,light-dark(#0072B2,#4FA8E0) 10%,transparent)}
.rl-table.rl-best td{vertical-align:middle}.rl-table.rl-best :is(th,td):first-child{padding-left:8px}
.rl-table.rl-best .rl-score{text-align:right;font-variant-numeric:tabular-nums}
</style>"""


def show(place: Place, spec: RunSpec, settings: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """The reward model to choose, the chosen answer and all others below it. `asked`: the prompt and what belongs to
    it, as the job has them."""
    if spec.task_row.has_turns:
        st.info("Best of n is not available here: a reward model scores a single answer, and this task has several "
                "turns.", icon=":material/info:")
        return
    scorer, read = _chosen(place, spec)
    if scorer is None:
        st.info("There is no reward model for this task yet: train one in the LLM lab, with the algorithm Process "
                "reward model or Reward model, or type the folder or hub id of a published one.",
                icon=":material/info:")
        return
    name = parse(place.models[0]).pinned.name
    job: Spec | None = {"job": "best_of_n", "model": name, "scorer": pinned_reward_models(scorer), "by": place.by,
                        "seed": place.seed, "count": place.ranked if place.temperature else 1, **read, **asked,
                        **settings}
    if read and job:  # a link alone loads no model from elsewhere
        job = requested("best", scorer, job, f"Loads {scorer} and ranks the answers by its scores.")
    if job is None:
        return
    found, fresh = jobs.result(job, "The model answers, the reward model ranks", "playground:best")
    if found is None:
        return
    st.html(f"{CSS}<p>{sentence(found, titles([name])[0])}</p>{table(found, place.by)}")
    if fresh and found["of_steps"]:
        st.caption(KEY)


def _chosen(place: Place, spec: RunSpec) -> tuple[str | None, dict[str, str]]:
    """The widgets that choose the reward model and the score of an answer; the name of the model, and how it reads
    steps if it is a published one."""
    known = scorers(spec, runs_of("llm"))
    scorer = place.scorer or next(iter(known), None)
    if scorer and scorer not in known:
        known[scorer] = _words(scorer)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="playground_best"):
        chosen = widget_state("playground:scorer", scorer, tuple(known.items()))
        st.selectbox("Reward model", list(known), list(known).index(scorer) if scorer else None, key=chosen.key,
                     format_func=lambda name: known.get(name, name), accept_new_options=True,
                     placeholder="Folder or hub id", on_change=lambda: go(scorer=(chosen.taken() or "").strip()),
                     help="The reward model of a run, or the folder or hub id of a published one, which you type.",
                     width="stretch")
        by = widget_state("playground:by", place.by)
        st.selectbox("Score of an answer", RANKINGS, RANKINGS.index(by.value), key=by.key, width=230,
                     format_func=WORDS.__getitem__, on_change=lambda: go(by=by.taken()),
                     help="How the scores of its steps become one. A model of whole answers gives one score anyway.")
        return scorer, _reading(place, spec, scorer) if scorer and is_published(scorer) else {}


def _reading(place: Place, spec: RunSpec, scorer: str) -> dict[str, str]:
    """How a published model reads steps: the widgets, and the values. By default as in the run, if it is the run's."""
    own = spec.knobs if scorer in members(str(spec.knobs.get("reward_model", ""))) else {}
    found = {}
    with st.popover("Steps", icon=":material/tune:", help="How the model reads the steps of an answer. A model of "
                    "whole answers needs none of this."):
        for knob in (SEPARATOR, *PUBLISHED):
            value = getattr(place, knob.key)
            found[knob.key] = str(own.get(knob.key, OF_PUBLISHED[knob.key]) if value is None else value)
            shown = widget_state(f"playground:{knob.key}", found[knob.key])
            st.text_input(knob.label, shown.value, key=shown.key, help=knob.help,
                          on_change=lambda shown=shown, key=knob.key: go(**{key: shown.taken()}))
    return found


def scorers(spec: RunSpec, runs: Sequence[Any]) -> dict[str, str]:
    """The reward models that may score answers of a run, in words by their names: its own, those that runs of its task
    trained, and the one that comes with the lab."""
    able = [run for run in runs if run.spec.row.loop in SOURCES and run.spec.task == spec.task]
    kept = {*with_checkpoint([run.id for run in able])}
    own = members(str(spec.knobs.get("reward_model", "")))
    found = {name: _words(name) for name in own} | {run.id: naming.to_choose(run) for run in able if run.id in kept}
    shipped = spec.task_row.scorer
    return found | ({shipped: "Process reward model that comes with the lab"} if shipped else {})


def _words(name: str) -> str:
    run = lab().find(name.partition("@")[0])
    return f"{naming.to_choose(run)}, step {name.partition('@')[2]}" if run else name


def sentence(found: Mapping[str, Any], model: str) -> str:
    """Which answer was chosen, whether the verifier agrees, and how many of all are right: safe HTML."""
    answers = found["answers"]
    best, count = answers[0], len(answers)
    many = f"{count} answers" if count > 1 else "1 answer"
    said = (f"Chosen from {many} by {html.escape(model)}: <code>{readable(best['text'])}</code>, with the score "
            f"{best['score']:.3g}.")
    if best["exact"] is None:
        return said
    right = sum(bool(each["exact"]) for each in answers)
    verdict = ("<span class='rl-pos'>✓ The verifier agrees: it is right.</span>" if best["exact"]
               else "✗ The verifier disagrees: it is wrong.")
    return f"{said} <b>{verdict}</b> <span class='rl-muted'>{percent(right / count)} of all {count} are right.</span>"


def table(found: Mapping[str, Any], by: str) -> str:
    """The answers, the chosen one first, each text once: safe HTML."""
    seen: dict[tuple[str, bool], list[Mapping[str, Any]]] = {}
    for each in found["answers"]:
        seen.setdefault((each["text"], each["truncated"]), []).append(each)
    rows = "".join(_row(place, group) for place, group in enumerate(seen.values()))
    head = SHORT[by] if found["of_steps"] else "score"
    return (f'<div class="rl-scroll"><table class="rl-table rl-best"><tr><th></th><th>answer</th>'
            f'<th class="rl-score">times</th>'
            f"<th class='rl-score'>{head}</th><th>verifier</th></tr>{rows}</table></div>")


def _row(place: int, group: Sequence[Mapping[str, Any]]) -> str:
    best = group[0]
    steps = "".join(step_card(text, float(score), gold, "the verifier says") for text, score, gold in best["steps"])
    cut = ' <span class="rl-muted">(cut)</span>' if best["truncated"] else ""
    verdict = {None: "", True: "<span class='rl-pos'>✓ right</span>", False: "✗ wrong"}[best["exact"]]
    text = steps or f"<code>{readable(best['text'])}</code>"
    return (f"<tr{' class=rl-won' if not place else ''}><td>{'<b>chosen</b>' if not place else ''}</td>"
            f"<td>{text}{cut}</td><td class='rl-score'>{len(group)}</td><td class='rl-score'>{best['score']:.3f}</td>"
            f"<td>{verdict}</td></tr>")
