"""The figure of π beside π*: which completions, in which order, and all others together."""

import pytest

from app.exact.policy import MOST, figure, others, shown, words


def prompt(optimum: bool = True):
    rows = [{"text": "ab"[: place % 3], "ended": place % 3 < 2, "reward": place / 20, "policy": 0.05 - place / 1000,
             "reference": 0.04, **({"optimum": place / 400} if optimum else {})} for place in range(15)]
    keys = ["policy", "reference", *(["optimum"] if optimum else [])]
    return {"prompt": "a", "rows": rows,
            "rest": {"count": 25, **{key: 1 - sum(row[key] for row in rows) for key in keys}}}


def test_nothing_is_lost_and_the_order_is_that_of_the_optimum():
    rows, rest = shown(prompt())
    assert len(rows) == MOST and rest["count"] == 25 + 15 - MOST
    assert [row["optimum"] for row in rows] == sorted((row["optimum"] for row in rows), reverse=True)
    for key in ("policy", "reference", "optimum"):
        assert sum(row[key] for row in rows) + rest[key] == pytest.approx(1)


@pytest.mark.parametrize("optimum, traces", [(True, 3), (False, 2)])
def test_without_an_optimum_there_is_none_to_draw(optimum, traces):
    drawn = figure(prompt(optimum), "light")
    assert len(drawn.data) == traces and {len(trace.x) for trace in drawn.data} == {MOST}
    assert ("π*" in words(prompt(optimum))) == optimum


def test_all_others_are_numbers_and_no_mark():
    likely = {**prompt(), "rest": {"count": 9_000, "policy": 0.6, "reference": 0.9, "optimum": 0.5}}
    _, rest = shown(likely)
    drawn = figure(likely, "dark")
    assert max(max(trace.x) for trace in drawn.data) < 0.1 < rest["policy"]
    said, = [each.text for each in drawn.layout.annotations if "other" in each.text]
    assert said == others(rest) == f"The other 9,007 together: π {rest['policy']:.2f}, " \
                                   f"π<sub>ref</sub> {rest['reference']:.2f}, π* {rest['optimum']:.2f}"
    assert others({"count": 0, "policy": 0.0}) == "These are all completions."


def test_the_best_completions_stand_out_and_their_text_is_shown_as_text():
    found = prompt()
    found["rows"][3] |= {"text": "<b>", "reward": 2.0}
    ticks = figure(found, "light").layout.yaxis.ticktext
    assert [tick for tick in ticks if tick.startswith("<b>")] == ["<b>&lt;b&gt;| · 2.00</b>"]
