"""Check that a run's prompts and completions fit the model's context together, before its first step."""

from __future__ import annotations

from labcore.errors import LabError
from labcore.llm.fitting import fitted
from labcore.llm.state import State
from labcore.tasks.held_out import held_out_file, in_words
from labcore.tasks.task import held_of
from labcore.tasks.usable import OWN, OfFile


def check_room(session: State) -> None:
    """Check that the length limit and every prompt of the user's file fit the context together; leave rows out where
    the run is to, and have the next record say so.

    Raises:
        LabError: they do not; said before the first step, not when such a prompt is drawn. A limit that is raised
            during the run cuts the completions at the context's end instead.
    """
    if int(session.knobs["max_new_tokens"]) >= session.context:
        raise LabError(f"`max_new_tokens` {session.knobs['max_new_tokens']} leaves no room for a prompt in the model's "
                       f"context of {session.context} tokens: use {session.context - 1} or less.")
    task = session.task if isinstance(session.task, OfFile) else None
    if task:
        task.take(task.every.rows, task.every.held)
    second = held_out_file(session.spec.knobs) if task else None
    besides = {in_words(second) if second else OWN: held_of(session.task), "the labelled pairs": session.labelled}
    fit = fitted(session.rendering, getattr(session.task, "rows", ()), session.prompt_room, session.knobs, besides)
    if task:
        task.take(fit.usable(task.every.rows), fit.usable(task.every.held))
        session.labelled = fit.usable(session.labelled)
    for text in (getattr(session.task, "said", ""), *fit.notes(task.left_out if task else {})):
        session.say_once(text)
