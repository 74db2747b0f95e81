"""The story strip above the charts of a language model's run: one prompt, the model's answers, their rewards, and how
likely each answer is before and after the update; beside it how likely it was over the whole run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from math import exp, floor, inf, log
from typing import Any

import streamlit as st

from app import dialogue, link
from app.chat_text import in_one_line, prompt_view
from app.components.story_strip import story_strip
from app.lab import active
from app.link import Param
from app.llm import probes, reward_parts, sample_age, verdicts
from app.llm.history import Column, over, recurring, thinned
from app.llm.step_groups import BATCH, WATCHED, Key, groups_of, key_of, likelihoods
from app.llm.story_words import SMALL, sentence
from app.theme import number
from app.training import files, goal_line
from app.training.feed import Feed
from labcore.catalog.amounts import likelihood, percent
from labcore.catalog.right import check
from labcore.runs.store.rows import RunRow

PROMPT = Param("story", "", link.one_of((*WATCHED, *BATCH)))  # the prompt that is shown; empty: the telling one
# The group of the batch that the microscope shows; choosing another prompt in the strip changes it.
ITEM, COMPLETION = Param("prompt", None, link.whole()), Param("completion", None, link.whole())
ROWS = 6  # of single answers
LOOKED_BACK = 5  # files of samples
LINE = 90  # characters of a prompt where it is chosen
SEEN = 0.01  # an answer that is not of this step and was never as likely is left out
FIRST = {"chosen": 3, "rejected": 2}  # rows on top; then the right answer
APART = "No history: no other stored step has this prompt."


def show(run: RunRow, feed: Feed, step: int) -> None:
    """Draw the strip of `run` at `step`, by the newest samples up to there; none where no policy learns."""
    if {"reward_model", "process_reward_model"} & {*run.spec.row.models}:
        return
    steps = files.steps_of(run.id, "samples")
    at = _newest(run.id, steps[:bisect_right(steps, step)])
    samples = files.read(run.id, "samples", at) if at else None
    groups = groups_of(samples or {})
    if not groups:
        why = probes.off(feed, step) or _nothing(run, bool(samples))
        story_strip({"empty": why}, key="story_strip", on_chosen=_choose)
        return
    kept = st.session_state.setdefault("story:kept", {})
    before = next((name for name, group in groups.items() if group["prompt"] == kept.get(run.id)), None)
    pinned, drawn = link.get(PROMPT), thinned(steps, at)
    chosen = pinned if pinned in groups else telling(groups, before, goal_line.prompt(run.spec),
                                                     recurring(run.id, drawn, groups))
    kept[run.id] = st.session_state[f"story:prompt:{run.id}"] = groups[chosen]["prompt"]
    columns = over(run.id, drawn, groups, chosen)
    story_strip(payload(groups, chosen, columns, at, step) | {
        "run": run.id, "check": check(run.spec.task_row, run.spec.knobs), "pinned": pinned == chosen,
        "plays": run.spec.task_row.has_turns,
        "lasting": chosen in WATCHED}, key="story_strip", on_chosen=_choose)
    dialogue.show(samples, run.id)


def _newest(run_id: str, steps: Sequence[int]) -> int:
    """The last of the steps; where its samples have no watched prompts, which take a large model more time than its
    batch does, one of the last few that has. 0 without any."""
    watched = (at for at in steps[:-LOOKED_BACK - 1:-1] if files.holds(run_id, "samples", at, "watched"))
    return next(watched, steps[-1] if steps else 0)


def _choose(prompt: str) -> None:
    """The user's prompt; an empty one is the telling one again."""
    link.put(PROMPT, prompt)
    for each in (ITEM, COMPLETION):
        link.put(each, each.default)


def prompt_of(run_id: str) -> str:
    """Return the prompt that a run's strip shows; empty if it shows none."""
    found: str = st.session_state.get(f"story:prompt:{run_id}", "")
    return found


def _nothing(run: RunRow, has_samples: bool) -> str:
    """The reason for an empty strip."""
    if has_samples:
        return "The samples of this step hold no probabilities."
    return ("The model's answers appear here after the first step." if active(run)
            else "This run has no samples at this step: it ended before the first ones, or a clean-up deleted them.")


# ---- which prompt ----------------------------------------------------------------------------------------------


def telling(groups: dict[str, dict[str, Any]], kept: str | None, example: str = "", again: Collection[str] = ()) -> str:
    """Return the prompt whose rewards differ most. The `example` of the sentence on top, and then the previous prompt,
    take precedence while their rewards differ.

    Watched ones come first, then those that other steps have `again`. Where no rewards differ, the one of before, else
    that whose answers move most.
    """
    names = [name for name in groups if name in WATCHED] or [name for name in groups if name in again] or list(groups)
    above = next((name for name in names if _quoted(groups[name]["prompt"], example)), None)
    if above and spread(groups[above]) > 0:
        return above
    if kept in names and spread(groups[kept]) > 0:
        return kept
    best = max(names, key=lambda name: spread(groups[name]))
    if spread(groups[best]) > 0:
        return best
    return kept if kept in names else max(names, key=lambda name: _movement(groups[name]))


def _quoted(prompt: str, example: str) -> bool:
    """True if the `example`, which may be cut, is of this prompt."""
    line = in_one_line(prompt, len(prompt))
    return line == example or (example.endswith("…") and line.startswith(example[:-1]))


def spread(group: dict[str, Any]) -> float:
    """The standard deviation of the rewards of a group's samples."""
    rewards = [(answer["reward"], answer["count"]) for answer in group["answers"]
               if answer["count"] and answer["reward"] is not None]
    count = sum(times for _, times in rewards)
    if not count:
        return 0.0
    mean = sum(reward * times for reward, times in rewards) / count
    return float((sum(times * (reward - mean) ** 2 for reward, times in rewards) / count) ** 0.5)


def _movement(group: dict[str, Any]) -> float:
    """The largest change of probability among the group's answers."""
    return max((abs(answer["after"] - answer["before"]) for answer in group["answers"]
                if answer["after"] is not None and answer["before"] is not None), default=0.0)


# ---- what the browser draws ------------------------------------------------------------------------------------


def payload(groups: dict[str, dict[str, Any]], chosen: str, columns: list[Column], at: int,
            step: int) -> dict[str, Any]:
    """The data of the component for a prompt at step `at`, where the page shows `step`.

    Bars and cells have shares of the scale, from 0 to 1; None where nothing is known.
    """
    group = groups[chosen]
    drawn = verdicts.payload(group, columns) if verdicts.grouped(group) else _answers(group, columns)
    return {
        "step": at, "late": step - at, "chosen": chosen,
        "options": [[name, "watched" if name in WATCHED else "batch", _line(each["prompt"])]
                    for name, each in groups.items()],
        "prompt": _line(group["prompt"]), "asked": prompt_view(group), "answer": group.get("answer") or "",
        **{f"{earned}s": any(answer[earned] is not None for answer in group["answers"])
           for earned in ("reward", "advantage")},
        "apart": "" if chosen in WATCHED or columns else APART, **drawn,
        "sentence": " ".join(filter(None, (drawn["sentence"], reward_parts.sentence(group),
                                           sample_age.sentence(group))))}


def _line(prompt: str) -> str:
    """A prompt's last user turn in one line."""
    return in_one_line(prompt, LINE)


def _answers(group: dict[str, Any], columns: list[Column]) -> dict[str, Any]:
    """Short answers: one a row, with how likely each is."""
    answers, left_out = rows(group, columns)
    known = [value for answer in answers for value in _known(answer, columns)]
    low = 0.0 if max(known, default=0.0) > log(SMALL) else floor(min(known))
    drawn = [_row(answer, columns, low) for answer in answers]
    rest = [] if low else [_rest(drawn, left_out)]
    return {"sentence": sentence(group), "columns": [column.step for column in columns], "low": low,
            "rows": [*drawn, *rest]}


def rows(group: dict[str, Any], columns: list[Column]) -> tuple[list[dict[str, Any]], int]:
    """The answers to show, the pair and the right one first, then the likeliest ever; and how many samples are of
    others.

    This step's samples come before those of other steps where there is no room for all. A right answer that is
    neither sampled nor likely, such as that of the file, is shown only where no other right one is.
    """
    found = {key_of(answer): answer for answer in group["answers"]}
    for column in columns:
        for key, exact in column.exact.items():
            found.setdefault(key, _elsewhere(key, exact))
    best = {key: max(_known(answer, columns), default=-inf) for key, answer in found.items()}
    seen = {key for key, answer in found.items() if answer["count"] or best[key] > log(SEEN)}
    right = {key for key, answer in found.items() if answer["exact"]}

    def first(key: Key) -> int:
        return FIRST.get(found[key].get("role", ""), int(key in (right & seen or right)))
    telling = [key for key in found if first(key) or key in seen]
    wanted = sorted(telling, key=lambda key: (-first(key), -found[key]["count"], -best[key]))
    shown = sorted(wanted[:ROWS], key=lambda key: (-first(key), -best[key]))
    return [found[key] for key in shown], sum(found[key]["count"] for key in wanted[ROWS:])


def _elsewhere(key: Key, exact: bool | None) -> dict[str, Any]:
    """An answer that this step says nothing of."""
    return {"text": key[0], "truncated": key[1], "exact": exact, "count": 0, "reward": None, "advantage": None,
            **likelihoods(None, None)}


def _known(answer: dict[str, Any], columns: list[Column]) -> list[float]:
    """All log-probs that are known of an answer, nats."""
    now = [answer[when] for when in ("logprob_before", "logprob_after")]
    over = [column.logprobs.get(key_of(answer)) for column in columns]
    return [value for value in (*now, *over) if value is not None]


def _row(answer: dict[str, Any], columns: list[Column], low: float) -> dict[str, Any]:
    """An answer with its bars and cells."""
    before, after = answer["logprob_before"], answer["logprob_after"]
    reward = answer["reward"]
    return {"text": answer["text"], "cut": bool(answer.get("truncated")), "rest": False, "exact": answer["exact"],
            "role": answer.get("role", ""), "count": answer["count"],
            "reward": None if reward is None else f"{reward:.2f}".rstrip("0").rstrip("."),
            "steps": answer.get("steps") or [],
            "earned": reward_parts.said(answer),
            "advantage": answer["advantage"], "before": _share(before, low), "after": _share(after, low),
            "said": _said([_words(before, low), _words(after, low)]),
            "cells": [_share(column.logprobs.get(key_of(answer)), low) for column in columns]}


def _rest(drawn: list[dict[str, Any]], count: int) -> dict[str, Any]:
    """All other answers together, of which `count` were sampled: what the rows leave of the probability.

    None where a row has no value; its words then say the most that can be left after the update.
    """
    before, after = ([row[when] for row in drawn] for when in ("before", "after"))
    words = _said([None if share is None else percent(share) for share in map(_left, (before, after))])
    known = [share for share in after if share is not None]
    if not words and known:
        words = [f"at most {percent(_left(known))}"]
    return {"text": "", "cut": False, "rest": True, "exact": None, "role": "", "count": count, "reward": None,
            "steps": [], "advantage": None, "before": _left(before), "after": _left(after), "said": words,
            "cells": [_left(cells) for cells in zip(*(row["cells"] for row in drawn), strict=True)]}


def _left(shares: Sequence[float | None]) -> float | None:
    """1 less the sum of the shares; None where one of them is not known, or there are none."""
    known = [share for share in shares if share is not None]
    return round(max(0.0, 1 - sum(known)), 5) if known and len(known) == len(shares) else None


def _said(words: list[str | None]) -> list[str]:
    """Before and after in words; once where they are the same."""
    return list(dict.fromkeys(filter(None, words)))


def _share(logprob: float | None, low: float) -> float | None:
    """The place of a log-prob on the scale, from 0 to 1: its probability, or its place between `low` and 0 nats."""
    if logprob is None:
        return None
    return round(1 - logprob / low if low else exp(min(logprob, 0.0)), 5)


def _words(logprob: float | None, low: float) -> str:
    if logprob is None:
        return ""
    return number(logprob, 1) if low else likelihood(logprob)
