"""The pictures of the CartPole page beside its curves: the acting policy, and the single episodes behind the mean
return."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from app import resend
from app.components.world_player import episodes, world_player
from app.training import files, live
from app.training.feed import OVERLAP, Feed
from labcore.classic.envs.gym_env import make_environments
from labcore.errors import LabError
from labcore.runs.store.rows import RunRow

GOING = ("starting", "running")  # states in which newer films come
PATIENCE = 200  # steps of an episode of random actions
WAITS = ("paused", "stepped", "stopped")  # events of a run that waits or ends at their step
READS = 200  # files that one refresh reads: a long run's episodes come over several


def scene(task: str, arguments: str = "") -> None:
    """Draw the page before a run: the environment, with random actions."""
    try:
        shown = _random_episode(task, arguments)
    except LabError:
        return  # the status line says what is wrong with the task
    world_player(episodes.at_random(task, shown, arguments), key="world_player")


@st.cache_data(show_spinner=False, max_entries=16)
def _random_episode(task: str, arguments: str = "", seed: int = 3) -> dict[str, Any]:
    """One episode of random actions, as an evaluation keeps it."""
    world = make_environments(task, 1, seed, arguments)
    rng = np.random.default_rng(seed)
    path, rewards, ended = [world.observations[0].round(5).tolist()], list[float](), False
    actions: list[list[float]] = []
    while not ended and len(rewards) < PATIENCE:
        if world.world.continuous:
            low, high = np.maximum(world.world.low, -1e3), np.minimum(world.world.high, 1e3)
            taken: np.ndarray = rng.uniform(low, high, (1, world.world.actions)).astype(np.float32)
            actions.append(taken[0].round(5).tolist())
        else:
            taken = rng.integers(world.world.actions, size=1)
        step = world.step(taken)
        path.append(step.next_observations[0].round(5).tolist())
        rewards.append(float(step.rewards[0]))
        ended = bool(step.terminated[0] or step.truncated[0])
    return {"path": path, "rewards": rewards, **({"actions": actions} if actions else {}),
            "truncated": not step.terminated[0], "stopped": "" if ended else f"the first {PATIENCE} steps"}


def picture(run: RunRow, feed: Feed, step: int) -> None:
    """Draw the greedy policy of a step beside the best one up to that step, among the stored ones. Those of a long run
    are thinned."""
    take_episodes(run, feed)
    newest, best = film(run, feed, step), next(filter(None, map(partial(_film, run), best_first(feed, step))), None)
    if newest and best:
        settled = step < feed.last_step or run.state not in GOING
        world_player(episodes.payload(run.id, run.spec.task, newest, best, settled, str(run.spec.knobs["env_args"])),
                     key="world_player")


def film(run: RunRow, feed: Feed, step: int, part: str = "evaluation") -> dict[str, Any] | None:
    """The samples of a step if they have `part`, otherwise those of the nearest earlier step that have it.

    Evaluations have a number in their row. If a run waited or ended, an episode was also filmed without a number.
    """
    due = {each.step for each in feed.steps if "eval_return" in each.metrics}
    due |= {step, *(event.step for event in feed.events if event.kind in WAITS)}
    return next(filter(None, (_film(run, each, part) for each in sorted(due, reverse=True) if each <= step)), None)


def _film(run: RunRow, step: int, part: str = "evaluation") -> dict[str, Any] | None:
    samples = files.read(run.id, "samples", step)
    return samples if samples and part in samples else None


def best_first(feed: Feed, step: int) -> list[int]:
    """The steps of the greedy evaluations up to `step`, the best first; of equals, the later one."""
    returns = {each.step: each.metrics["eval_return"] for each in feed.steps
               if "eval_return" in each.metrics and each.step <= step}
    return sorted(returns, key=lambda each: (returns[each], each), reverse=True)


def take_episodes(run: RunRow, feed: Feed) -> None:
    """Read single episodes of steps that have none in `feed` yet, evenly spread where they are many.

    Missing files are skipped: a file may not be written yet, and those of a long run are thinned.
    """
    there = set(files.steps_of(run.id, "samples"))
    wanted = [step.step for step in feed.steps if step.metrics.get("episodes") and step.step % feed.stride == 0
              and step.step not in feed.dots and step.step in there]
    for step in wanted[::-(-len(wanted) // READS) or 1]:
        if samples := files.load(run.id, "samples", step):
            feed.dots[step] = [[each["env_step"], each["return"]] for each in samples["episodes"]]
            if step <= feed.sent - OVERLAP * feed.stride:  # its row is in the browser, without its dots
                resend.mounted(live.CHART)
