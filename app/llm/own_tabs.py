"""The tabs of a language model's run that no other kind has: what it writes, token by token, and the surrogate."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app import charts, link, theme, tokens
from app.held import held
from app.lab import active
from app.link import Param
from app.llm import proxy_tab, reward_tab
from app.training import files
from app.training.feed import Feed
from app.training.tabs import Tabs
from labcore.catalog import choices
from labcore.store.rows import RunRow

# How the samples are looked at: inside one completion of a prompt, coloured by one of the token's numbers.
INSIDE, COLOUR = Param("inside", False, link.switch), Param("colour", "")
PROMPT, COMPLETION = Param("prompt", None, link.whole()), Param("completion", None, link.whole())
NO_CURVE = "This surrogate is not a function of the ratio and the advantage alone: there is no curve to draw."


def _samples(run: RunRow, feed: Feed, step: int) -> None:
    samples = files.newest(run.id, "samples", step)
    if samples is None:
        st.caption("What the model writes appears here after the first steps." if active(run)
                   else "This run has no samples: it ended before the first ones, or a clean-up deleted them.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        groups = samples.get("groups", [])
        inside = _switch(INSIDE, "Look inside one completion") if groups else False
    if inside:
        _inside(groups)
    if pairs := samples.get("pairs"):
        st.html(tokens.pair_table(pairs))
    if scored := samples.get("scored"):
        left, right = st.columns([1, 3], gap="large")
        left.html(tokens.calibration_table(samples["calibration"]))
        right.html(tokens.scored_table(scored))
    alone = groups and all(len(group["completions"]) == 1 for group in groups)
    if alone:
        st.html(tokens.flat_table(groups))
    for start in range(0, 0 if alone else len(groups), 2):
        for column, group in zip(st.columns(2, gap="large"), groups[start:start + 2], strict=False):
            column.html(tokens.group_table(group))
    st.caption(files.of_step(samples["step"], step))


def _switch(which: Param[bool], title: str) -> bool:
    """A switch that the link remembers, off at first."""
    shown = held(f"switch:{which.key}", link.get(which))
    return st.toggle(title, shown.value, key=shown.key, on_change=lambda: link.put(which, shown.taken()))


def _choice(which: Param[int | None], title: str, options: list[int], words: Callable[[int], str], width: int) -> int:
    """One of some numbers, which the link remembers; the first at first."""
    chosen, labels = link.get(which), {each: words(each) for each in options}
    # The browser keeps the words as its value: other words, another widget.
    shown = held(f"choice:{which.key}", chosen if chosen in options else options[0], of=tuple(labels.items()))
    st.selectbox(title, options, options.index(shown.value), format_func=labels.get, key=shown.key, width=width,
                 on_change=lambda: link.put(which, shown.taken(), default=options[0]))
    return shown.value


def _inside(groups: list[dict]) -> None:
    """One completion, token by token."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        group = groups[_choice(PROMPT, "Prompt", [*range(len(groups))], lambda each: groups[each]["prompt"], 220)]
        order = [index for index, _ in tokens.ranked(group)]
        completion = group["completions"][_choice(COMPLETION, "Completion", order, lambda each:
                                                  f"{each + 1}: {group['completions'][each]['text']!r}", 260)]
        offered = tokens.offered(completion)
        chosen = _colour(offered) if offered else None
    if chosen is None:
        st.caption("This file holds no numbers per token.")
        return
    view = tokens.VIEWS[chosen]
    st.html(tokens.strip(completion, view))
    cut = " Dashed: beyond the bound of the surrogate." if any(completion.get("cut") or []) else ""
    old = " An earlier version wrote this file, without KL per token." if (
        completion.get("ref_logprobs") and "kl" not in completion) else ""
    st.caption(f"{view.label}{f', {view.unit}' if view.unit else ''}. Hover over a token for all its numbers."
               f"{cut}{old}")


def _colour(offered: list[str]) -> str:
    chosen = link.get(COLOUR)
    shown = held("colour", chosen if chosen in offered else offered[0], of=tuple(offered))
    st.segmented_control("Coloured by", offered, format_func=lambda key: tokens.VIEWS[key].label, required=True,
                         default=shown.value, key=shown.key,
                         on_change=lambda: link.put(COLOUR, shown.taken(), default=offered[0]))
    return shown.value


def _surrogate(run: RunRow, feed: Feed, step: int) -> None:
    kind = theme.ground()
    left, right = st.columns(2, gap="large")
    with left:
        _clip_picture(run, feed, step, kind)
    with right:
        line = files.newest(run.id, "lines", step)
        if line is None:
            st.caption("The line through an update appears with the first step.")
            return
        st.plotly_chart(charts.line_figure(line, kind), theme=None, key="line", config={"displayModeBar": False},
                        alt="Mean KL and the surrogates along the line from the old to the new parameters")
        tokens_used = f" on {line['tokens']:,} tokens of its batch" if line.get("tokens") else ""
        st.caption(f"{files.of_step(line['step'], step)}{tokens_used}. α = 0 is the policy before the update, 1 after "
                   "it. The clipped surrogate bends down where the unclipped one keeps rising.")


def _clip_picture(run: RunRow, feed: Feed, step: int, kind: str) -> None:
    samples = files.newest(run.id, "samples", step)
    if samples is None:
        st.caption("No tokens yet: the dots come with the first samples.")
        return
    if "surrogate" not in samples:
        drawn = any("cut" in completion for group in samples["groups"] for completion in group["completions"])
        st.caption(NO_CURVE if drawn else charts.EARLIER)
        return
    dots = charts.token_dots(samples)
    st.plotly_chart(charts.surrogate_figure(dots, samples["surrogate"], kind), theme=None, key="clip",
                    config={"displayModeBar": False}, alt="The surrogate against the ratio, one dot per token")
    counts, updates = charts.counts_of(dots), feed.knobs(samples["step"])["updates_per_batch"]
    if counts["one"] == counts["tokens"]:
        st.caption(f"All {counts['tokens']:,} tokens have ratio 1: with one update per batch "
                   f"(μ = {updates}) the gradient is taken where old and new policy are equal, so "
                   "the clip does nothing. Raise μ or the mini-batches to see the dots spread.")
    else:
        st.caption(f"{files.of_step(samples['step'], step)}. {counts['tokens']:,} tokens after its last update: "
                   f"{counts['cut']:,} clipped (open circles: no gradient in one more update), "
                   f"{counts['still']:,} with advantage 0, {counts['one']:,} at ratio 1. "
                   "The chart Clipped counts all tokens of the batch as each update met them.")


def _has_ratio(run: RunRow) -> bool:
    surrogate = run.spec.knobs.get("surrogate")
    return surrogate is not None and choices.SURROGATE[str(surrogate)].needs_ratio


TABS: Tabs = {
    "Proxy and gold": (proxy_tab.show, proxy_tab.fits), "Reward model": (reward_tab.show, reward_tab.fits),
    "Samples": (_samples, lambda run: True), "Surrogate": (_surrogate, _has_ratio),
}
