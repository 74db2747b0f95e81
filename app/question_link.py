"""Links from a finding, a metric or a knob to the question about it on the page Help, which opens in a new tab."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from labcore.catalog import questions
from labcore.catalog.question import Question


def address(question: Question) -> str:
    """The address of the question's answer on the page Help."""
    return f"help?question={question.key}"


def as_html(question: Question | None) -> str:
    """A small question mark; nothing where there is no question."""
    if question is None:
        return ""
    ask = html.escape(question.ask)
    return f'<a class="rl-ask" href="{address(question)}" target="_blank" title="{ask}" aria-label="Help: {ask}">?</a>'


def as_markdown(question: Question | None) -> str:
    """The question as the end of a tooltip; nothing where there is none."""
    return f" [{question.ask}]({address(question)})" if question else ""


def beside(panels: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The panels of charts, each with the question about its first metric. Only pages call this, because an exported
    file has no Help to link to."""
    return [panel | {"ask": as_html(questions.of_metric(panel["metrics"][0]["key"]))} for panel in panels]
