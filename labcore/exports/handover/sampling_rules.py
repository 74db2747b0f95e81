"""What becomes of the knobs of stale data and of difficulty in another tool."""

from __future__ import annotations

from labcore.catalog.conditions import SAME_DTYPE
from labcore.catalog.llm.difficulty import DIFFICULTY
from labcore.catalog.llm.staleness import IN_ORDER
from labcore.exports.handover.plan import Rule, Rules, acting, built_in, missing, switch


def stale_rules(tool: str, staleness: Rule, precision: str) -> Rules:
    """What becomes of the knobs of stale data in `tool`. `precision` is its setting for the sampler's weights."""
    return {
        "staleness": switch(staleness, 0),
        "staleness_order": acting(switch(missing(f"in {tool} ages depend on how long completions take"), IN_ORDER),
                                  "staleness_order"),
        "replay_share": switch(missing(f"no equivalent in {tool}, which uses each group in one step only"), 0.0),
        "replay_steps": built_in(),
        "sampler_dtype": switch(missing(f"the script does not round the sampler's weights: see {precision}"),
                                SAME_DTYPE)}


def pool_rules(note: str) -> Rules:
    """The same of the knobs of difficulty, which nothing there stands for; `note` says what to do."""
    pool, *others = (knob.key for knob in DIFFICULTY)
    return {pool: switch(missing(note), 0), **dict.fromkeys(others, built_in("with prompt_pool"))}
