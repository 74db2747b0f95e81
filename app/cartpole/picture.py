"""What the CartPole page shows besides curves: the policy acting, and the single episodes behind the mean return."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from app.components.world_player import episodes, world_player
from app.training import files
from app.training.feed import OVERLAP, Feed
from labcore.envs.gym_env import make_environments
from labcore.errors import LabError
from labcore.store.rows import RunRow

PATIENCE = 200  # steps of an episode of random actions
READS = 200  # files that one refresh reads: a long run's episodes come over several


def scene(task: str) -> None:
    """The page before a run: the world, with actions at random."""
    try:
        shown = _random_episode(task)
    except LabError:
        return  # the status line says what is wrong with the task
    world_player(episodes.at_random(task, shown), key="world_player")


@st.cache_data(show_spinner=False, max_entries=16)
def _random_episode(task: str, seed: int = 3) -> dict[str, Any]:
    """One episode of random actions, as an evaluation keeps it."""
    world = make_environments(task, 1, seed)
    rng = np.random.default_rng(seed)
    path, rewards, ended = [world.observations[0].round(5).tolist()], [], False
    while not ended and len(rewards) < PATIENCE:
        step = world.step(rng.integers(world.world.actions, size=1))
        path.append(step.next_observations[0].round(5).tolist())
        rewards.append(float(step.rewards[0]))
        ended = bool(step.terminated[0] or step.truncated[0])
    return {"path": path, "rewards": rewards, "truncated": not step.terminated[0],
            "stopped": "" if ended else f"the first {PATIENCE} steps"}


def picture(run: RunRow, feed: Feed) -> None:
    """The newest greedy policy beside the best one so far, of those that are kept: a long run's files are thinned."""
    take_episodes(run, feed)
    shown = [next(filter(None, (files.read(run.id, "samples", step) for step in steps)), None)
             for steps in evaluated(feed)]
    if all(shown):
        world_player(episodes.payload(run.id, run.spec.task, *shown), key="world_player")


def evaluated(feed: Feed) -> tuple[list[int], list[int]]:
    """The steps of the greedy evaluations, the newest first, and the best first; of equals, the later one."""
    returns = {step.step: step.metrics["eval_return"] for step in feed.steps if "eval_return" in step.metrics}
    return (sorted(returns, reverse=True), sorted(returns, key=lambda step: (returns[step], step), reverse=True))


def take_episodes(run: RunRow, feed: Feed) -> None:
    """Read single episodes of steps that have none in `feed` yet, evenly spread where they are many.

    Only of files that are there: one may not be written yet, and those of a long run are thinned.
    """
    there = set(files.steps_of(run.id, "samples"))
    wanted = [step.step for step in feed.steps if step.metrics.get("episodes") and step.step % feed.stride == 0
              and step.step not in feed.dots and step.step in there]
    for step in wanted[::-(-len(wanted) // READS) or 1]:
        if samples := files.load(run.id, "samples", step):
            feed.dots[step] = [[each["env_step"], each["return"]] for each in samples["episodes"]]
            if step <= feed.sent - OVERLAP * feed.stride:  # its row is in the browser, without its dots
                st.session_state["send_all"] = True
