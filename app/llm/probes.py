"""The message for a run without samples because its probes are off."""

from __future__ import annotations

from app.training.feed import Feed

OFF = ("Probes are off in this run, so it leaves no samples, no watched prompts and no surrogate line. Turn on the "
       "knob Probes to see them from the next step on.")


def off(feed: Feed, step: int) -> str:
    """The sentence for a run whose probes were off at `step`; else empty."""
    return "" if feed.knobs(step).get("probes", True) else OFF
