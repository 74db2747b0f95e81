"""The figure of π beside π*: which completions, in which order, and all others together."""

from __future__ import annotations

import pytest

from app.exact.policy_figure import MOST, policy_figure, shown, words


def prompt(optimum: bool = True):
    rows = [{"text": "ab"[: place % 3], "ended": place % 3 < 2, "reward": place / 20, "policy": 0.05 - place / 1000,
             "reference": 0.04, **({"optimum": place / 400} if optimum else {})} for place in range(15)]
    keys = ["policy", "reference", *(["optimum"] if optimum else [])]
    return {"prompt": "a", "rows": rows,
            "rest": {"count": 25, **{key: 1 - sum(row[key] for row in rows) for key in keys}}}


def test_nothing_is_lost_and_the_order_is_that_of_the_optimum():
    rows, rest = shown(prompt())
    assert len(rows) == MOST and rest["count"] == 28
    assert [row["optimum"] for row in rows] == sorted((row["optimum"] for row in rows), reverse=True)
    for key in ("policy", "reference", "optimum"):
        assert sum(row[key] for row in rows) + rest[key] == pytest.approx(1)


@pytest.mark.parametrize("optimum, traces", [(True, 3), (False, 2)])
def test_without_an_optimum_there_is_none_to_draw(optimum, traces):
    figure = policy_figure(prompt(optimum), "light")
    assert len(figure.data) == traces and len(figure.data[0].y) == MOST + 1
    assert figure.layout.xaxis.ticktext[-1] == "28 others"
    assert ("π*" in words(prompt(optimum))) == optimum
