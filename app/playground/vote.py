"""The blind vote between two answers without names. The votes become pairs for DPO."""

from __future__ import annotations

import html
import random
import secrets
from itertools import combinations
from typing import Any

import streamlit as st

from app import jobs, session
from app.draft import begin
from app.lab import titled
from app.playground.models import LETTERS, badge, titles
from app.playground.place import Place, go
from app.session import page_of, show_error
from app.tokens import readable
from app.widget_state import widget_state
from labcore.analysis.compare.statistics import interval
from labcore.catalog.amounts import percent
from labcore.catalog.right import check
from labcore.errors import LabError
from labcore.runs.files.jsonl import LIMIT
from labcore.runs.files.uploads import keep_file
from labcore.runs.models import source, spec_of
from labcore.runs.spec.model_names import parse
from labcore.tasks import votes
from labcore.tasks.votes import Side

ROUNDS = 16  # questions that are asked of the models at once
STATE = "playground:vote"
CSS = """
<style>
.rl-ballot{border:1px solid color-mix(in srgb,currentColor 18%,transparent);border-radius:10px;padding:12px 14px;
  min-height:104px}
.rl-ballot h4{font-size:14px;font-weight:600;margin:0 0 8px;padding:0;opacity:.75}
.rl-ballot code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:18px;background:none;
  color:inherit;padding:0;overflow-wrap:anywhere;white-space:pre-wrap}
.rl-ballot p{font-size:14px;margin:8px 0 0}
.rl-ballot.rl-won{box-shadow:0 0 0 2px light-dark(#0072B2,#4FA8E0)}
.rl-share{position:relative;height:14px;max-width:420px;margin:6px 0 2px;
  background:linear-gradient(90deg,transparent calc(50% - 1px),currentColor 0 calc(50% + 1px),transparent 0)}
.rl-share::before{content:"";position:absolute;inset:6px 0;background:color-mix(in srgb,currentColor 25%,transparent)}
.rl-share i{position:absolute;top:4px;height:6px;border-radius:3px;background:light-dark(#0072B2,#4FA8E0);opacity:.55}
.rl-share b{position:absolute;top:2px;width:10px;height:10px;margin-left:-5px;border-radius:50%;
  background:light-dark(#0072B2,#4FA8E0)}
</style>"""


def own_prompt(place: Place) -> None:
    """The switch between new prompts of the task and the user's own, drawn anew for each vote."""
    shown = widget_state("vote:own", place.own)
    st.toggle("Always ask my prompt", shown.value, key=shown.key, on_change=lambda: go(own=shown.taken()),
              help="Off: each vote uses a new prompt of the task. On: it uses your prompt, with new samples.")


def show(place: Place, settings: dict[str, Any], prompt: tuple[str, str | None] | None) -> None:
    """The ballot, the tally so far, and the uses of the votes. `prompt` and its answer, or prompts of the task."""
    names = [parse(name).pinned.name for name in place.models]
    if len(set(names)) < 2:
        st.info("A vote needs two different models: add a second one on the left.", icon=":material/info:")
        return
    _round(names, settings, prompt)
    _files(place)


def _round(names: list[str], settings: dict[str, Any], prompt: tuple[str, str | None] | None) -> None:
    """Draw one question after the other; equal answers are skipped."""
    asked = dict(zip(("prompt", "answer"), prompt, strict=True)) if prompt else {}
    state = _state((tuple(names), tuple(settings.items()), tuple(asked.items())))
    found, fresh = jobs.result({"job": "quiz", "models": list(dict.fromkeys(names)), "count": ROUNDS,
                                "seed": state["seed"], **asked, **settings}, f"{len(set(names))} models answer",
                               "vote")
    if found is None or not fresh:
        return
    turns = _turns(len(found["columns"]), len(found["questions"]), f"{state['salt']}:{state['seed']}")
    ballots = [(question, *((found["columns"][place]["model"], found["columns"][place]["answers"][row])
                            for place in turns[row])) for row, question in enumerate(found["questions"])]
    ballots = [each for each in ballots if each[1][1]["text"] != each[2][1]["text"]]
    if not ballots:
        st.info(f"The models gave identical answers to {ROUNDS} questions in a row, so there is nothing to choose "
                f"between.", icon=":material/info:")
        st.button("Try other "
                  "questions", icon=":material/refresh:", on_click=_next, args=(0, _where(state)), key="vote:others")
        return
    question, *sides = ballots[state["round"] % len(ballots)]
    if random.Random(f"{state['salt']}:{state['seed']}:{state['round']}").random() < 0.5:
        sides.reverse()
    badged = _badged(names)
    _ballot(question, sides, badged, settings | {"seed": state["seed"]}, len(ballots))
    _tally(badged)


def _turns(models: int, questions: int, luck: str) -> list[tuple[int, int]]:
    """Return the two models of each question: every pair equally often, in random order."""
    pairs = list(combinations(range(models), 2))
    turns = [pairs[row % len(pairs)] for row in range(questions)]
    random.Random(luck).shuffle(turns)
    return turns


def _badged(names: list[str]) -> dict[str, str]:
    """Each model by the letter of its first slot and in words: HTML."""
    return {name: f"{badge(names.index(name))}<b>{html.escape(title)}</b>"
            for name, title in zip(names, titles(names), strict=True)}


def _state(of: tuple[Any, ...]) -> dict[str, Any]:
    """Return this tab's place in the vote. Other models or settings begin anew, with other questions."""
    state = st.session_state.get(STATE)
    if state is None or state["of"] != of:
        begun = 1 + votes.count() + (state["seed"] if state else 0)
        state = st.session_state[STATE] = {"of": of, "seed": begun, "round": 0, "choice": None,
                                           "salt": secrets.token_hex(4)}
    return state


def _ballot(question: dict[str, Any], sides: list[tuple[str, dict[str, Any]]], badged: dict[str, str],
            about: dict[str, Any], ballots: int) -> None:
    """The two answers; after the vote who wrote them, as `badged` says, and the verifier's verdicts."""
    state = st.session_state[STATE]
    choice = state["choice"]
    st.html(f'{CSS}<div class="rl-status"><span class="rl-muted" style="margin:0 .5rem 0 0">Prompt</span>'
            f'<code class="rl-mono" style="font-size:17px">{readable(question["prompt"])}</code></div>')
    asked = question.get("turns") or question["prompt"]
    for place, (column, (model, answer)) in enumerate(zip(st.columns(2, gap="medium"), sides, strict=True)):
        column.html(_card(place, model, badged[model], answer, choice))
    with st.container(horizontal=True, gap="small", key="vote_buttons"):
        if choice is None:
            for words, value, shortcut in (("1 is better", 0, "1"), ("Tie", "tie", "0"), ("2 is better", 1, "2")):
                st.button(words, key=f"vote:{value}", shortcut=shortcut, on_click=_vote, width="stretch",
                          args=(value, _where(state), asked, sides, about))
        else:
            st.button("Next", key="vote:next", icon=":material/arrow_forward:", shortcut="Enter", type="primary",
                      on_click=_next, args=(ballots, _where(state)), width="stretch")


def _card(place: int, model: str, badged: str, answer: dict[str, Any], choice: int | str | None) -> str:
    cut = ' <span class="rl-muted">(cut)</span>' if answer["truncated"] else ""
    line = ""
    if choice is not None:
        spec = spec_of(parse(model).run)
        said = f'title="check: {check(spec.task_row, spec.knobs)}"'
        verdict = {None: "", True: f' · <span class="rl-pos" {said}>✓ right</span>',
                   False: f" · <span {said}>✗ wrong</span>"}[answer["exact"]]
        line = f'<p>{badged} <span class="rl-muted">{html.escape(model)}</span>{verdict}</p>'
    won = " rl-won" if choice == place else ""
    return (f'<div class="rl-ballot{won}"><h4>{place + 1}{" · your choice" if won else ""}</h4>'
            f"<code>{readable(answer['text'])}</code>{cut}{line}</div>")


def _where(state: dict[str, Any]) -> tuple[Any, ...]:
    """Return the question on the page: a key that is hit twice before it is drawn again counts once."""
    return state["of"], state["seed"], state["round"]


def _vote(choice: int | str, where: tuple[Any, ...], prompt: votes.Prompt, sides: list[tuple[str, dict[str, Any]]],
          about: dict[str, Any]) -> None:
    """Keep the vote, the first on its question; only then are the names shown."""
    state = st.session_state[STATE]
    if state["choice"] is not None or _where(state) != where:
        return
    one, other = (Side(model, answer["text"]) for model, answer in sides)
    try:
        if choice == "tie":
            votes.tie(prompt, one, other, **about)
        else:
            chosen, rejected = (other, one) if choice else (one, other)
            votes.prefer(prompt, chosen, rejected, **about)
    except LabError as error:
        show_error(str(error))
        return
    state["choice"] = choice


def _next(ballots: int, where: tuple[Any, ...]) -> None:
    state = st.session_state[STATE]
    if _where(state) != where:
        return
    state["choice"], state["round"] = None, state["round"] + 1
    if state["round"] >= ballots:
        state["round"], state["seed"] = 0, state["seed"] + 1


def _tally(badged: dict[str, str]) -> None:
    """The votes so far of all pairs, whichever answers next, so that it gives nothing away."""
    pairs = [(pair, votes.tally(*pair)) for pair in combinations(badged, 2)]
    voted = [(pair, found) for pair, found in pairs if found.decided or found.ties]
    if not voted:
        st.caption("Names are shown after each vote. The keys 1, 0 and 2 vote as well.")
        return
    st.html("".join(_duel(badged, *pair, found, alone=len(pairs) == 1) for pair, found in voted))
    if len(pairs) > 1:
        st.caption("95 % intervals: exact binomial, ties left out.")


def _duel(badged: dict[str, str], first: str, second: str, found: votes.Tally, alone: bool) -> str:
    """The votes between two models, who leads first, with how sure they make it: HTML. Drawn where it is `alone`."""
    ties = f"{found.ties} tie{'s' if found.ties > 1 else ''}" if found.ties else ""
    if not found.decided:
        return f'<div class="rl-status"><span>So far {ties} between {badged[first]} and {badged[second]}.</span></div>'
    wins = max(found.first, found.second)
    winner, loser = (first, second) if wins == found.first else (second, first)
    low, high = interval(wins, found.decided)
    said = "No winner so far." if low <= 0.5 else "That is more than chance."
    line = (f'<div class="rl-status"><span>{badged[winner]} preferred to {badged[loser]} in {wins} of {found.decided} '
            f"vote{'s' if found.decided > 1 else ''}{f', {ties}' if ties else ''}: {percent(wins / found.decided)} "
            f'<span class="rl-muted">95 % interval {percent(low)} to {percent(high)}'
            f"{', exact binomial, ties left out' if alone else ''}.</span> {said}</span></div>")
    return line if not alone else line + (
        f'<div class="rl-share" role="img" aria-label="{percent(low)} to {percent(high)}, with chance at 50 %"><i '
        f'style="'
        f'left:{low:.1%};width:{high - low:.1%}"></i><b style="left:{wins / found.decided:.1%}"></b></div>')


def _files(place: Place) -> None:
    """The votes of all sessions as a file, and a way to learn from them."""
    count = votes.count()
    if not count:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.download_button(f"{count} pair{'s' if count > 1 else ''} as JSONL", votes.pairs_file().read_bytes(),
                           "preferences.jsonl", "application/jsonl", icon=":material/download:", on_click="ignore")
        with st.popover("Train DPO on these", icon=":material/model_training:"):
            names = titles([parse(name).pinned.name for name in place.models])
            words = {name: f"{LETTERS[place.models.index(name)]} · {title} · {titled(name)}"
                     for name, title in zip(place.models, names, strict=True)}
            start = st.selectbox("Start from", list(place.models), len(place.models) - 1, key="vote:start",
                                 format_func=words.__getitem__)
            if st.button("Open the LLM lab", type="primary", icon=":material/play_arrow:", key="vote:train"):
                _train(start)


def _train(name: str) -> None:
    """Open the LLM lab with DPO, the pairs and the model in place."""
    try:
        found = source(parse(name))
        kept = keep_file(votes.pairs_file(), LIMIT)
    except LabError as error:
        session.show_error(str(error))
        st.rerun()
    begin("llm", algorithm="dpo", task="preferences", data={"preferences": str(kept)},
          model=str(found.checkpoint / "policy") if found.checkpoint else found.weights or found.spec.model)
    st.switch_page(page_of("llm"))
