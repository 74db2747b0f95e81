"""What a trainer has sent of its completions, and in one sentence what it has not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.llm.microscope import view
from app.training import files
from app.training.feed import Feed
from labcore.errors import listed
from labcore.runs.store.rows import RunRow

# What may be missing in a completion, and what is not known then; each only where the ones that it needs are there.
TOKENS, LOGPROBS = "tokens", "logprobs"
_BY_TOKEN = (("old_logprobs", "log-probs from before the update", "ratios"),
             ("ref_logprobs", "log-probs of the reference", "KL"), ("entropy", "entropies", "entropy"))


def has_completions(run: RunRow) -> bool:
    """True if any completions of a run were sent."""
    return bool(files.steps_of(run.id, "samples"))


def missing(samples: Mapping[str, Any]) -> str:
    """What the completions of a file lack, in a sentence; empty where nothing is missing."""
    there = [each for group in samples.get("groups") or () for each in group["completions"]]
    return " ".join(filter(None, (_of_completions(there), _of_tokens(there)))) if there else ""


def _of_completions(there: list[Mapping[str, Any]]) -> str:
    rewards, advantages = (any(each.get(key) is not None for each in there) for key in ("reward", "advantage"))
    if not rewards and not advantages:
        return "The trainer sent neither rewards nor advantages, so these are only texts."
    return "" if advantages else ("The trainer did not send advantages, so it is not known which completions the "
                                  "update made likelier.")


def _of_tokens(there: list[Mapping[str, Any]]) -> str:
    if not any(each.get(TOKENS) for each in there):
        return "It sent no tokens, so there are no numbers of single tokens." if not any(
            each.get(LOGPROBS) for each in there) else "It sent no texts of tokens, so completions are shown whole."
    if not any(each.get(LOGPROBS) for each in there):
        return "It sent no log-probs, so the probabilities, ratios and KL of single tokens are not known."
    lacks = [(what, unknown) for key, what, unknown in _BY_TOKEN if not any(each.get(key) for each in there)]
    if not lacks:
        return ""
    unknown = [each for _, each in lacks]
    return (f"It did not send {listed([what for what, _ in lacks])}, so the {listed(unknown)} of single tokens "
            f"{'are' if unknown[1:] or unknown[0].endswith('s') else 'is'} not known.")


def microscope(run: RunRow, feed: Feed, step: int) -> None:
    """The microscope of a step, and what its completions lack."""
    view.show(run, feed, step)
    if (samples := files.newest(run.id, "samples", step)) and (said := missing(samples)):
        st.caption(f":material/info: {said}")
