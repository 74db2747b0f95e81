"""Episodes of a step as dialogues: what the model wrote, how the environment answered, and the reward of each turn.

Two of one prompt stand side by side, the one with the highest and the one with the lowest reward, so that what the
rewards differ by is in sight.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app.theme import number
from app.tokens import readable
from labcore.catalog.amounts import likelihood

CSS = """
<style>
.rl-episodes{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr));gap:14px 22px;
  margin:2px 0 6px}
.rl-episode{min-width:0}
.rl-episode header{display:flex;flex-wrap:wrap;gap:2px 10px;align-items:baseline;font-size:14px;margin-bottom:6px}
.rl-episode header b{font-weight:600}
.rl-episode header span{opacity:.76;font-variant-numeric:tabular-nums}
.rl-episode ol{list-style:none;margin:0;padding:0;display:flex;flex-direction:column;gap:5px}
.rl-episode li{display:flex;align-items:center;gap:8px;margin:0;font-size:14px;line-height:1.4}
.rl-episode li>p{margin:0;padding:5px 11px;border-radius:12px;max-width:78%;overflow-wrap:anywhere;
  max-height:9.8em;overflow-y:auto}
.rl-episode li>small{font-size:12px;opacity:.76;font-variant-numeric:tabular-nums;white-space:nowrap}
.rl-said>p{background:color-mix(in srgb,currentColor 8%,transparent);border-bottom-left-radius:3px}
.rl-wrote{flex-direction:row-reverse}
.rl-wrote>p{background:color-mix(in srgb,light-dark(#0072B2,#4FA8E0) 20%,transparent);border-bottom-right-radius:3px}
.rl-wrote>small.rl-paid{color:light-dark(#005A8C,#7CC0EC);opacity:1;font-weight:600}
.rl-wrote>small.rl-fined{color:light-dark(#8A5A00,#F2B84B);opacity:1;font-weight:600}
</style>"""
Turns = Mapping[str, Any]  # a completion of a group that has "turns"


def show(samples: Mapping[str, Any] | None, run: str) -> None:
    """Draw two episodes of a step's samples, each with a link that replays it; nothing for a task with one turn."""
    found = telling(samples or {})
    if not samples or not found:
        return
    group, episodes = found
    st.html(CSS + page(group, episodes, int(samples["step"])))
    with st.container(horizontal=True, gap="small"):
        for each, words in zip(episodes, ("the best", "the worst") if len(episodes) > 1 else ("it",), strict=True):
            if "row" in group:
                at = samples["groups"].index(group), group["completions"].index(each)
                st.page_link("../pages/playground.py", label=f"Play {words} again", icon=":material/replay:",
                             query_params={"runs": run, "replay": f"{samples['step']}.{at[0]}.{at[1]}"})


def telling(samples: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Turns]] | None:
    """The group whose rewards differ most, with its best and worst episode; one episode if all rewards are equal."""
    groups = [(group, played) for group in samples.get("groups") or []
              if (played := [each for each in group["completions"] if each.get("turns")])]
    if not groups:
        return None

    def earned(each: Turns) -> float:
        return sum(float(turn["reward"]) for turn in each["turns"])
    group, played = max(groups, key=lambda pair: max(map(earned, pair[1])) - min(map(earned, pair[1])))
    best = max(played, key=lambda each: (earned(each), len(each["turns"])))  # if equal, the longest
    worst = min(played, key=lambda each: (earned(each), -len(each["turns"])))
    return group, [best] if earned(best) == earned(worst) else [best, worst]


def page(group: Mapping[str, Any], episodes: list[Turns], step: int) -> str:
    """The episodes as safe HTML, side by side if there is room."""
    same = "In each group all episodes earned the same reward." if len(episodes) == 1 else \
        "Highest and lowest reward of one group."
    cards = "".join(card(group["prompt"], each) for each in episodes)
    return (f'<p style="font-size:14px;margin:8px 0 6px"><b>Episodes of step {step:,}</b> <span class="rl-muted">{same}'
            f'{_hidden(group.get("row"))} Blue: a turn of the model, with its reward. Grey: text of the '
            f'environment, which the model is not trained on.</span></p><div class="rl-episodes">{cards}</div>')


def _hidden(row: object) -> str:
    """The hidden state that a group's episodes start from: the short values of its row, as a sentence."""
    values = row.items() if isinstance(row, Mapping) else ()
    said = [f"{key} {value}" for key, value in values if isinstance(value, (int, float, str)) and len(str(value)) < 40]
    return f" Hidden start: {html.escape(', '.join(said))}." if said else ""


def card(first: str, episode: Turns, players: Sequence[str] = ()) -> str:
    """An episode: its first observation and its turns. `players` wrote the first turns, and the model all others.
    An `open` episode has no end yet. A turn with `answered` has a person's text in place of the environment's answer.
    """
    turns, total = episode["turns"], sum(turn["reward"] for turn in episode["turns"])
    end = "solved" if episode["exact"] else "ended unsolved" if episode.get("ended") else \
        "cut at the length limit" if episode["truncated"] else "out of turns"
    names = [*players[:len(turns)], *["model"] * (len(turns) - len(players))]
    said = "".join(_wrote(turn, "" if place and names[place] == names[place - 1] else names[place])
                   + _said(turn["observation"], turn.get("answered", "")) for place, turn in enumerate(turns))
    count = f"{len(turns)} turn{'' if len(turns) == 1 else 's'}"
    said_of = "being played" if episode.get("open") else f"{'✓' if episode['exact'] else '✗'} {end}"
    return (f'<article class="rl-episode"><header><b>{said_of}</b>'
            f"<span>reward {number(total, 2)}</span><span>{count}</span>{_advantage(episode)}{_moved(episode)}</header>"
            f"<ol>{_said(first, 'environment')}{said}</ol></article>")


def _advantage(episode: Turns) -> str:
    found = episode.get("advantage")
    return "" if found is None else f"<span>advantage {'+' if found > 0 else ''}{number(found, 2)}</span>"


def _moved(episode: Turns) -> str:
    """The probability of the model's turns before and after the update; empty if it was not measured."""
    before, after = (episode.get(key) for key in ("old_logprobs", "logprobs"))
    if not before or not after or None in (*before, *after):
        return ""
    return f"<span>probability {likelihood(sum(before))} → {likelihood(sum(after))}</span>"


def _said(text: str, name: str = "") -> str:
    """The text of the environment."""
    label = f"<small>{name}</small>" if name else ""
    return f'<li class="rl-said" aria-label="environment: {html.escape(text)}"><p>{readable(text)}</p>{label}</li>' \
        if text else ""


def _wrote(turn: Mapping[str, Any], name: str = "") -> str:
    """The text of the model, and its reward."""
    label = f"<small>{name}</small>" if name else ""
    reward = float(turn["reward"])
    look = "rl-paid" if reward > 0 else "rl-fined" if reward < 0 else ""
    earned = f"{'+' if reward > 0 else ''}{number(reward, 2)}" if reward else "0"
    return (f'<li class="rl-wrote" aria-label="model: {html.escape(turn["text"])}, reward {earned}">'
            f'<p>{readable(turn["text"])}</p><small class="{look}">reward {earned}</small>{label}</li>')
