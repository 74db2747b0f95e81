"""Watch a loop from outside and add samples and lines of its steps to its records.

The loop yields its stages (`loops.stages`). This module does not change the training: without it the loop computes the
same weights. It also adds the metrics that compare the sampler with the trainer token by token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from labcore.llm.experience import Batch
from labcore.llm.loops.stages import Collected, Learnt, Ready, Stage, Taught, Updated
from labcore.llm.probes import view, watched
from labcore.llm.probes.budget import LINE, SAMPLES
from labcore.llm.probes.token_records import StepTokens
from labcore.llm.rollout import Rollout
from labcore.llm.session import LlmSession
from labcore.runs.spec.session import Pictures, Record


def beside(session: LlmSession, stages: Iterator[Stage]) -> Iterator[Record | None]:
    """The records of a loop with the pictures of their steps, on the clock of the probes; None where the loop says so.
    """
    step: OnlinePictures | GivenPictures | None = None
    session.probes.begin()
    for stage in stages:
        match stage, step:
            case Collected(batch), _:
                step = OnlinePictures(session, batch)
            case Ready(due), _:
                step = GivenPictures(session, due)
            case Updated(part, met), OnlinePictures():
                step.tokens.take(part, met)
            case Learnt(rollout), OnlinePictures():
                step.draw(rollout)
            case Taught(samples), GivenPictures():
                step.draw(samples)
            case Record(), _:
                record = step.added_to(stage) if step else stage
                session.probes.end()
                yield record
                session.probes.begin()
            case None, _:
                yield None


def as_it_is(session: LlmSession) -> LlmSession:
    """A copy of the session for later use: knobs and the state outside the networks may change in the meantime."""
    return replace(session, knobs=dict(session.knobs), notes=[])


class OnlinePictures:
    """The samples and lines of one online step. It is created once the batch is complete, because comparisons of the
    policy before and after the updates start there."""

    def __init__(self, session: LlmSession, batch: Batch) -> None:
        self.session, self.batch, self.due = session, batch, view.due(session)
        self.before = view.kept(session, self.due.line) if view.on(session) else None
        self.watching = watched.timed(session) if self.due.samples else None
        self.rollout, self.tokens = batch.rollout, StepTokens(batch.rollout)
        self.samples: dict[str, Any] | None = None
        self.line: dict[str, Any] | None = None

    def draw(self, rollout: Rollout) -> None:
        """Compute the samples and the line that are due, and keep the data to compute the others later."""
        self.rollout = rollout
        self.samples = self._samples_due()
        if self.due.line and self.before is not None:
            with self.session.probes.spend(LINE, self.session.step):
                self.line = view.line(self.session, rollout, self.before["policy"])
        self.session = as_it_is(self.session)

    def added_to(self, record: Record) -> Record:
        """The record of the step with its pictures."""
        compared = {"sampling/logp_difference": self.tokens.difference()} | self.tokens.apart()
        return replace(record, metrics=record.metrics | compared,
                       samples=self.samples, line=self.line, look=self.look if view.on(self.session) else None)

    def look(self) -> Pictures:
        """Compute the samples and the line of a step that was not due. Without the parameters before the step, and for
        large networks, it leaves out everything that compares with them. Its time counts in the probes' budget, so
        later looks wait longer."""
        with self.session.probes.spend(SAMPLES):
            samples = None if self.samples is not None else self._groups()
        if self.before is None or view.limited(self.session):
            return samples, None
        if samples is not None:
            samples["watched"] = watched.afterwards(self.session, self.before)
        return samples, None if self.line is not None else view.line(self.session, self.rollout, self.before["policy"])

    def _samples_due(self) -> dict[str, Any] | None:
        """The samples of the step where they are due; before the first ones of a large network some groups."""
        if self.watching:
            with self.session.probes.spend(SAMPLES, self.session.step):
                shown = self._groups()
            return shown | watched.completed(self.session, self.watching)
        if most := view.groups_at_first(self.session, len(self.rollout.prompts)):
            with self.session.probes.spend(SAMPLES):
                return self._groups(most)
        return None

    def _groups(self, most: int = view.GROUPS) -> dict[str, Any]:
        return view.groups(self.session, self.batch.batch, self.rollout, self.tokens, most)


class GivenPictures:
    """The pictures of one step that learns from given completions. Made before its update."""

    def __init__(self, session: LlmSession, due: bool) -> None:
        self.session, self.due = session, due and view.on(session)
        self.before = view.kept(session) if view.on(session) else None
        self.watching = watched.timed(session) if self.due and view.watching(session) else None
        self.samples: dict[str, Any] | None = None

    def draw(self, samples: Callable[[LlmSession], dict[str, Any]]) -> None:
        """Compute the samples if they are due, otherwise keep the data to compute them later."""
        self.make = samples
        if self.due:
            self.samples = samples(self.session) | watched.completed(self.session, self.watching)
        self.session = as_it_is(self.session)

    def added_to(self, record: Record) -> Record:
        """The record of the step with its pictures."""
        look = None if self.due or not view.on(self.session) else self.look
        return replace(record, samples=self.samples, look=look)

    def look(self) -> Pictures:
        """The samples of a step that were not due."""
        return self.make(self.session) | watched.looked(self.session, self.before), None
