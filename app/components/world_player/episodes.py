"""The player's data of an evaluation: the picture of its world, its path, its rewards, how it ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.theme import number
from labcore.classic.envs.arguments import parse

LINES = 8  # numbers of an observation that are drawn as lines; a path of hundreds would be slow to send
TRACK = 2.4  # m: where CartPole's track ends
SOLVED = ("goal reached", "out of time")


@dataclass(frozen=True)
class World:
    """The picture of an environment's episodes.

    `picture` is the function in world_pictures.js, `rate` the steps per second at speed 1×, `ends` what it means that
    the world or the clock ended an episode; `names` are the numbers of an observation.
    """

    picture: str = "lines"
    rate: float = 30.0
    ends: tuple[str, str] = ("the episode ended", "time limit")
    names: tuple[str, ...] = ()
    grid: dict[str, Any] | None = None


def _grid(rows: tuple[str, ...], walls: tuple[tuple[float, ...], ...] = (), per_cell: int = 1,
          places: tuple[int, ...] = ()) -> dict[str, Any]:
    """A map of letters: H a hole, G the goal, C the cliff, others as they stand; F and . are plain."""
    looks = {"H": ("hole", ""), "C": ("edge", ""), "G": ("goal", "G"), "F": ("", ""), ".": ("", "")}
    if places:  # there letters are places, not looks
        looks = {".": ("", "")}
    cells = [dict(zip(("look", "mark"), looks.get(letter, ("", letter)), strict=True))
             for row in rows for letter in row]
    return {"rows": len(rows), "columns": len(rows[0]), "cells": cells, "per_cell": per_cell, "places": list(places),
            "walls": [list(wall) for wall in walls]}


LAKE = ("SFFF", "FHFH", "FFFH", "HFFG")
BIG_LAKE = ("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG")
CLIFF = ("............", "............", "............", "SCCCCCCCCCCG")
TOWN = ("R...G", ".....", ".....", ".....", "Y..B.")
TOWN_WALLS = ((2, 0, 2, 2), (1, 3, 1, 5), (3, 3, 3, 5))  # x0, y0, x1, y1 in cells

_LANDER = ("x", "height", "speed x", "speed y", "angle, rad", "turning, rad/s", "left leg", "right leg")

# By the environment's name, without its namespace and version.
WORLDS: dict[str, World] = {
    "CartPole": World("cart", 50.0, ("the pole fell", "still up at the time limit"),
                      ("position, m", "speed, m/s", "angle, rad", "turning, rad/s")),
    "Acrobot": World("acrobot", 30.0, SOLVED, ("cos θ₁", "sin θ₁", "cos θ₂", "sin θ₂", "turning 1", "turning 2")),
    "MountainCar": World("hill", 30.0, SOLVED, ("position", "velocity")),
    "MountainCarContinuous": World("hill", 60.0, SOLVED, ("position", "velocity")),
    "Pendulum": World("pendulum", 20.0, ("the episode ended", "time limit"), ("cos θ", "sin θ", "speed, rad/s")),
    "LunarLander": World("lander", 50.0, ("landed or crashed", "out of time"), _LANDER),
    "LunarLanderContinuous": World("lander", 50.0, ("landed or crashed", "out of time"), _LANDER),
    "FrozenLake": World("grid", 4.0, SOLVED, grid=_grid(LAKE)),
    "FrozenLake8x8": World("grid", 6.0, SOLVED, grid=_grid(BIG_LAKE)),
    "CliffWalking": World("grid", 4.0, SOLVED, grid=_grid(CLIFF)),
    "CliffWalkingSlippery": World("grid", 4.0, SOLVED, grid=_grid(CLIFF)),
    "Taxi": World("grid", 4.0, ("delivered", "out of time"),
                  grid=_grid(TOWN, TOWN_WALLS, per_cell=20, places=(0, 4, 20, 23))),
}


def world_of(task: str, arguments: str = "") -> World:
    """The world of an environment id with these arguments, which may say another map; lines for one that has no
    picture.

    >>> world_of("CartPole-v1").picture, world_of("phys2d/CartPole-v0").picture, world_of("Own-v3").picture
    ('cart', 'cart', 'lines')
    """
    world = WORLDS.get(task.rpartition("/")[2].rpartition("-v")[0], World())
    given = parse(arguments)
    if not world.grid or not given.keys() & {"map_name", "desc"}:
        return world
    rows = given.get("desc") or {"4x4": LAKE, "8x8": BIG_LAKE}.get(str(given.get("map_name")))
    return replace(world, grid=_grid(tuple(rows))) if rows else World()


def states(path: list[list[float]]) -> list[list[float]]:
    """A path of a Discrete world, one number per step in place of a one among zeros; any other as it is.

    Runs of now keep the number, those of before the ones and zeros.

    >>> states([[0, 0, 1], [1, 0, 0]]), states([[2], [0]]), states([[0.5, 0.5]])
    ([[2], [0]], [[2], [0]], [[0.5, 0.5]])
    """
    single = all(len(row) > 1 and row.count(1) == 1 and row.count(0) == len(row) - 1 for row in path)
    return [[row.index(1)] for row in path] if single else path


def ended(world: World, row: list[float], cut: bool) -> str:
    """The end of an episode in words, from its last observation.

    >>> ended(WORLDS["CartPole"], [2.5, 0, 0, 0], False), ended(WORLDS["FrozenLake"], [5], False)
    ('left the track', 'in a hole')
    """
    if not cut and world.picture == "cart" and abs(row[0]) > TRACK:
        return "left the track"
    if not cut and world.grid and world.grid["cells"][int(row[0]) // world.grid["per_cell"]]["look"] == "hole":
        return "in a hole"
    return world.ends[cut]


def episode(title: str, about: str, world: World, shown: Mapping[str, Any], key: int = 0) -> dict[str, Any]:
    """One seat of the player: an evaluation's first episode. `key` names it: the same key is the same path."""
    path, cut = states(shown["path"]), shown.get("truncated")
    return {"title": title, "about": about, "key": key, "path": path, "rewards": shown.get("rewards"),
            **({"actions": shown["actions"]} if shown.get("actions") else {}),
            "ended": shown.get("stopped") or ("" if cut is None else ended(world, path[-1], bool(cut)))}


def of_step(title: str, world: World, samples: Mapping[str, Any]) -> dict[str, Any]:
    """The shown episode of a step's greedy evaluation, with the mean return of all of its episodes."""
    returns = samples["evaluation"]["returns"]
    about = f"step {samples['step']:,}, return {_return(sum(returns) / len(returns))}"
    about += f", mean of {len(returns)}" if len(returns) > 1 else ""
    return episode(title, about, world, samples["evaluation"], samples["step"])


def payload(run_id: str, task: str, newest: Mapping[str, Any], best: Mapping[str, Any],
            settled: bool = False, arguments: str = "") -> dict[str, Any]:
    """The data of the player: the greedy policy of the step that is shown and the best one up to there, in one world.

    `settled`: the page stays at that step, so the film is shown at once. Otherwise the film that is playing is played
    to its end.
    """
    world = fitting(task, newest["evaluation"]["path"], arguments)
    seats = [of_step("Policy", world, newest), of_step("Best so far", world, best)]
    return _data(run_id, task, world, seats) | {"settled": settled}


def at_random(task: str, shown: Mapping[str, Any], arguments: str = "") -> dict[str, Any]:
    """The player with one episode, of no run."""
    world = fitting(task, shown["path"], arguments)
    about = f"return {_return(sum(shown['rewards']))}, before any learning"
    return _data("", task, world, [episode("Random actions", about, world, shown)])


def _return(value: float) -> str:
    return number(value, 0 if value == int(value) else 1 if abs(value) >= 10 else 2)


def fitting(task: str, path: list[list[float]], arguments: str = "") -> World:
    """The world of a task, unless an environment of that name observes something else than the picture needs."""
    world, width = world_of(task, arguments), len(states(path)[0])
    return World() if world.picture != "lines" and width != (1 if world.grid else len(world.names)) else world


def _data(run_id: str, task: str, world: World, seats: list[dict[str, Any]]) -> dict[str, Any]:
    width = len(seats[0]["path"][0])
    names = world.names or (("state",) if width == 1 else tuple(f"number {place + 1}" for place in range(width)))
    if world.picture == "lines":
        seats = [{**seat, "path": [row[:LINES] for row in seat["path"]]} for seat in seats]
    return {"run": run_id, "world": task, "picture": world.picture, "rate": world.rate, "grid": world.grid,
            "names": list(names), "episodes": seats}
