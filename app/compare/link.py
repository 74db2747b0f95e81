"""What a link to the Compare page says: which runs, and how they are looked at. Only what is no default is in it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from app.session import SMOOTHEST
from labcore.catalog.metrics import METRICS
from labcore.compare.best import CRITERIA
from labcore.compare.traces import AXES
from labcore.errors import LabError

CURVES = "curves"


@dataclass(frozen=True)
class Place:
    """Runs by their ids, or all those of a `sweep`. Where `metric` or `x` is empty the runs decide. `batch` is the
    affair of the view of that name, `by` what a sweep is judged by.

    `baseline` is a run of the group that the others are measured against; `traces`: each seed is drawn as well.
    """

    runs: tuple[str, ...] = ()
    sweep: str = ""
    metric: str = ""
    x: str = ""
    smooth: float = 0.0
    baseline: str = ""
    traces: bool = False
    view: str = CURVES
    batch: str = ""
    by: str = ""

    def to_url(self) -> dict[str, str]:
        """The query that opens this view again."""
        written = {"runs": ",".join(self.runs), "traces": "1" if self.traces else "", "smooth": f"{self.smooth:g}"}
        default = asdict(Place()) | {"runs": "", "traces": "", "smooth": "0"}
        return {key: value for key, value in (asdict(self) | written).items() if value != default[key]}


def of(query: dict[str, str], views: tuple[str, ...]) -> tuple[Place, list[str]]:
    """The place that a query names, and a sentence for each part that cannot be."""
    place = Place(tuple(dict.fromkeys(part for part in query.get("runs", "").split(",") if part)),
                  query.get("sweep", ""), baseline=query.get("baseline", ""), batch=query.get("batch", ""))
    if place.sweep:
        place = replace(place, runs=())
    faults = []
    checks = {"metric": _metric, "x": _axis, "smooth": _smooth, "traces": _traces, "by": _criterion,
              "view": lambda name: _view(name, views)}
    for key, check in checks.items():
        if key in query:
            try:
                place = replace(place, **{key: check(query[key])})
            except LabError as error:
                faults.append(str(error))
    return place, faults


def _metric(key: str) -> str:
    if key not in METRICS:
        near = get_close_matches(key, METRICS, n=1)
        raise LabError(f"The link asks for the metric {key!r}, which there is not: "
                       f"{f'did you mean {near[0]!r}?' if near else 'choose another one.'}")
    return key


def _axis(key: str) -> str:
    if key not in AXES:
        raise LabError(f"The link asks for the axis {key!r}, which there is not: choose one of {', '.join(AXES)}.")
    return key


def _criterion(key: str) -> str:
    if key not in CRITERIA:
        raise LabError(f"The link asks to judge a sweep by {key!r}, which there is not: "
                       f"choose one of {', '.join(CRITERIA)}.")
    return key


def _smooth(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= SMOOTHEST:
        raise LabError(f"The link asks for the smoothing {text!r}: use a number from 0 to {SMOOTHEST:g}.")
    return value


def _traces(text: str) -> bool:
    if text not in ("0", "1"):
        raise LabError(f"The link says traces={text}: use 1 to draw each seed, or 0.")
    return text == "1"


def _view(name: str, views: tuple[str, ...]) -> str:
    if name not in views:
        raise LabError(f"The link asks for the view {name!r}, which there is not: choose one of {', '.join(views)}.")
    return name


def go(place: Place) -> None:
    """Put another place into the URL."""
    st.query_params.from_dict(place.to_url())


def change(**parts: Any) -> None:
    """Other parts of the place that the URL names by now: two choices may be made before the page is drawn again."""
    now, _ = of(st.query_params.to_dict(), (st.query_params.get("view") or CURVES,))
    go(replace(now, **parts))


def address(place: Place) -> str:
    """The whole link, to be copied."""
    query = urlencode(place.to_url(), safe=",/")
    return f"{(st.context.url or '').split('?')[0]}?{query}"
