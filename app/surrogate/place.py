"""The link parameters of the surrogate explorer: the run whose tokens it shows, and every value that can be dragged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, make_dataclass
from typing import Any

import streamlit as st

from app import link
from app.components.surrogate_explorer import is_drawn
from app.link import param
from app.training.clock import AT
from labcore.catalog import choices
from labcore.catalog.choice import Surrogate
from labcore.catalog.knob import Knob
from labcore.catalog.llm.knobs import ONLINE
from labcore.errors import LabError
from labcore.runs.store.rows import RunRow

PAGE = "../pages/surrogate.py"


def can_be_drawn(choice: Surrogate) -> bool:
    """True if the explorer can draw the surrogate: it has a twin in JavaScript that needs only numbers and the
    ratio."""
    return choice.needs_ratio and is_drawn(choice.key) and all(knob.type in (int, float) for knob in choice.knobs)


_DRAWN = tuple(filter(can_be_drawn, choices.SURROGATE))
# The knobs of all surrogates that are drawn, and β. Their defaults are those of the lab.
KNOBS: dict[str, Knob] = {knob.key: knob for knob in (
    *(knob for knob in ONLINE if knob.key == "beta"), *(knob for choice in _DRAWN for knob in choice.knobs))}
USUAL_BETA = 0.5  # the lab's own default is 0, which is no penalty
# By the surrogates that are drawn, their knobs; the two beside the choices are what the clip is compared with.
SURROGATES: dict[str, tuple[str, ...]] = {"cpi": (), "clip": (), "kl_penalised": ("beta",)} | {
    choice.key: choice.needs for choice in _DRAWN}
LABELS = {choice.key: choice.label for choice in _DRAWN}
FIRST = "clip"  # drawn alone when the page opens without a run
METHODS = ("trpo", "vpg", *SURROGATES)
TOKENS = 3  # of the small policy
LEAST = 0.001  # probability that a token of it keeps


def _numbers(low: float, high: float, count: int) -> Callable[[str], tuple[float, ...]]:
    """`count` numbers with commas between, each from `low` to `high`."""
    def read(said: str) -> tuple[float, ...]:
        parts = said.split(",")
        if len(parts) != count:
            raise LabError(f"give {count} numbers, separated by commas")
        return tuple(map(link.number(low, high), parts))
    return read


def _policy(said: str) -> tuple[float, ...]:
    """Probabilities of all tokens, each at least LEAST, that sum to 1."""
    found = _numbers(LEAST, 1, TOKENS)(said)
    if abs(sum(found) - 1) > 0.01:
        raise LabError(f"{TOKENS} probabilities sum to 1")
    return tuple(value / sum(found) for value in found)


def _written(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:.4g}" for value in values)


# A field for each knob.
_Knobs: Any = make_dataclass("_Knobs", [(key, float | None, param(None, knob.parse)) for key, knob in KNOBS.items()],
                             frozen=True)


@dataclass(frozen=True)
class Place(_Knobs):  # type: ignore[misc]  # its fields are those of KNOBS
    """None stands for the run's value, without a run for the lab's default. `rho` is the selected ratio, `a` the size
    of the advantage.

    `shown` are the curves, `focus` the one that is explained, `close` that the ratios near 1 are drawn large.
    Below: the small policy's rewards, `pair` (for two different tokens) and π_old; then the methods' step size and
    epochs, TRPO's δ, the step of the plain policy gradient, and the method along which the line goes.
    """

    run: str = param("")
    at: int = param(AT.default, AT.read)
    focus: str | None = param(None, link.one_of(SURROGATES))
    shown: tuple[str, ...] | None = param(None, link.some_of(SURROGATES))
    rho: float | None = param(None, link.number(0, 1e6))
    a: float | None = param(None, link.number(0.01, 1e6))
    close: bool | None = param(None, link.switch)
    rewards: tuple[float, ...] = param((0.8, 0.5, 0.2), _numbers(-2, 2, TOKENS), _written)
    pair: float = param(1.0, link.number(0, 2))
    old: tuple[float, ...] = param((0.3, 0.2, 0.5), _policy, _written)
    rate: float = param(1.0, link.number(0, 100))
    epochs: int = param(10, link.whole(1, 100))
    delta: float | None = param(None, link.number(1e-4, 10))
    leap: float = param(20.0, link.number(0, 1000))
    along: str = param("clip", link.one_of(METHODS))


GRABBED = tuple(each.name for each in fields(Place) if each.name not in ("run", "at"))


def grab(changes: dict[str, Any]) -> None:
    """Put the dragged values into the link; None resets a value to its default."""
    known = {name: each for name, each in link.params(Place).items() if name in GRABBED}
    said = {name: known[name].write(value) for name, value in changes.items() if name in known and value is not None}
    values, _ = link.parsed((known[name] for name in said), said)
    link.turn(Place, **{name: known[name].default for name in changes if name in known and name not in values},
              **values)


def link_to(run: RunRow, step: int) -> None:
    """Draw a link that opens the explorer with the tokens of the run at `step`, and with the ε and β of that step."""
    st.page_link(PAGE, label="Open in the surrogate explorer", icon=":material/open_in_full:",
                 query_params={"run": run.id, "at": str(step)},
                 help="These tokens on curves that you can drag: the clip range, β, the advantage, other surrogates")
