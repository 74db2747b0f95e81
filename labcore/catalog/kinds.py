"""The kinds of run: language models, the same beside exact values, mazes, and Gymnasium environments; and watched
runs, which another trainer trains and the lab only shows.

Each has its tables and what trains it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from labcore.catalog import cartpole, exact, maze, watch
from labcore.catalog import exact as enumerable
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.knob import Value, suggestion
from labcore.catalog.llm import algorithms, tasks
from labcore.catalog.llm.models import MODELS
from labcore.catalog.task import Task
from labcore.errors import LabError, quoted


@dataclass(frozen=True)
class Kind:
    """A row. `session` ("module:class") holds the state of a run, `loops` ("module:function" by an algorithm's `loop`)
    train it; where a kind has none, the algorithm's `method` does. `check`, where there is one, says in words why a
    task and its knobs cannot be run, `caution` what of a spec can be started but will not work well, `goal` what a spec
    learns (`labcore.catalog.goal`), `replay` lets a checkpoint act; they are imported only when called
    (`pkgutil.resolve_name`).

    `algorithm`, `task` and the first model are what a run has where nothing is chosen; a single model is no choice.
    `task_title` is what its tasks are called. `any_task`: a task may also be a name that no table knows. `unwatched`:
    defaults of knobs of a run that nobody looks at. `shared`: knobs of its algorithms that say what is to be learnt, or
    that a task sets to suit it; another algorithm takes over their values. `axes` are the horizontal axes of its charts
    beside the steps; the first one is where runs are compared by default. `speed` is the metric of its pace,
    `speed_unit` its unit where this kind says it in other words. `on_gpu`: the device auto is a GPU where there is one.
    `pretrained`: its models may be pretrained ones, for which there are other defaults.
    `short`: its runs mostly take seconds and little memory, so that one of them need not wait for a sweep.
    `smoothing` is the usual smoothing of a metric in comparisons, for values of single episodes, which scatter.
    `elsewhere`: another trainer trains its runs, so the lab cannot start or change them.
    """

    key: str
    label: str
    session: str
    algorithms: Mapping[str, Algorithm]
    tasks: Mapping[str, Task]
    algorithm: str
    task: str
    models: tuple[str, ...]
    task_title: str
    axes: Mapping[str, str]
    speed: str
    goal: str
    loops: Mapping[str, str] = field(default_factory=dict)
    check: str = ""
    caution: str = ""
    replay: str = ""
    any_task: bool = False
    unwatched: Mapping[str, Value] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    on_gpu: bool = False
    speed_unit: str = ""
    short: bool = False
    pretrained: bool = False
    smoothing: Mapping[str, float] = field(default_factory=dict)
    elsewhere: bool = False

    @property
    def model(self) -> str:
        return self.models[0]


_ROWS = (
    Kind("llm", "LLM lab", "labcore.llm.session:LlmSession", algorithms.ALGORITHMS, tasks.TASKS, "grpo", "sort",
         tuple(MODELS), "Task", {"updates": "Updates", "tokens": "Tokens", "seconds": "Seconds"}, "tokens_per_second",
         "labcore.tasks.goal:goal", caution="labcore.tasks.cautions:caution",
         loops={name: f"labcore.llm.loops.{name}:run"
                for name in ("online", "preference", "prm", "reward_model", "sft")},
         on_gpu=True, pretrained=True),
    Kind("exact", "Exact", "labcore.llm.exact.session:ExactSession", exact.ALGORITHMS, enumerable.TASKS, "rloo",
         "sorted", ("table", "tiny"), "Problem", {"updates": "Updates", "tokens": "Tokens", "seconds": "Seconds"},
         "tokens_per_second", "labcore.tasks.goal:goal", check="labcore.tasks.enumerable:check",
         caution="labcore.runs.spec.cautions:precision_caution",
         loops={name: f"labcore.llm.loops.{name}:run" for name in ("online", "preference")}, on_gpu=True),
    Kind("maze", "Maze", "labcore.classic.tabular.session:TabularSession", maze.ALGORITHMS, maze.TASKS, "q_learning",
         "corridors", ("table",), "Maze", {"step": "Steps", "env_steps": "Moves", "seconds": "Seconds"},
         "env_steps_per_second", "labcore.classic.envs.maze_presets:goal", speed_unit="moves/s", short=True,
         check="labcore.classic.envs.maze_presets:build",
         caution="labcore.classic.envs.maze_presets:caution",
         loops={"planning": "labcore.classic.tabular.loops:planning",
                "temporal_difference": "labcore.classic.tabular.loops:learning",
                "tabular_policy_gradient": "labcore.classic.tabular.loops:learning"},
         replay="labcore.classic.tabular.player:replay", unwatched={"pace": 0.0}, shared=maze.SHARED,
         smoothing=dict.fromkeys(("episode_return", "moves_to_goal", "td_error"), 0.95)),
    Kind("cartpole", "CartPole", "labcore.classic.deep.session:DeepSession", cartpole.ALGORITHMS, cartpole.TASKS, "ppo",
         "CartPole-v1", ("network",), "World",
         {"env_steps": "Environment steps", "updates": "Updates", "seconds": "Seconds"}, "env_steps_per_second",
         "labcore.classic.envs.gym_world:goal", short=True, check="labcore.classic.envs.gym_world:check",
         caution="labcore.classic.envs.gym_world:caution", replay="labcore.classic.deep.evaluation:replay",
         any_task=True),
)
WATCH = Kind("watch", "Watched runs", "labcore.watch.converting.elsewhere:Elsewhere", watch.ALGORITHMS, watch.TASKS,
             watch.OTHER, watch.TASK, ("elsewhere",), "Name",
             {"step": "Steps", "tokens": "Tokens", "seconds": "Seconds"}, "tokens_per_second",
             "labcore.watch.converting.elsewhere:goal", any_task=True, elsewhere=True)

KINDS: dict[str, Kind] = {row.key: row for row in _ROWS}  # kinds that the lab trains
EVERY: Mapping[str, Kind] = ChainMap({WATCH.key: WATCH}, KINDS)  # kinds that the lab shows


def built_in() -> frozenset[str]:
    """The names of all models that come with the lab."""
    return frozenset(model for row in KINDS.values() for model in row.models)


def kind(key: str) -> Kind:
    """The row of a kind of run. Raises LabError if there is none."""
    if key not in EVERY:
        raise LabError(f"There is no kind of run {quoted(key)}: {suggestion(key, list(KINDS))}")
    return EVERY[key]


def algorithm(key: str, of: str = "llm") -> Algorithm:
    """The row of algorithm `key` of a kind. Raises LabError if there is no such algorithm."""
    table = kind(of).algorithms
    if key not in table:
        _elsewhere("algorithm", key, of, [row.key for row in KINDS.values() if key in row.algorithms])
        raise LabError(f"There is no algorithm {quoted(key)}: {suggestion(key, list(table))}")
    return table[key]


def _elsewhere(what: str, key: str, of: str, kinds: list[str]) -> None:
    """Raises LabError where other kinds know the name."""
    if kinds:
        raise LabError(f"The {what} {quoted(key)} is of the kind {' or '.join(kinds)}, not {of}: choose that kind.")


def task(key: str, of: str = "llm") -> Task:
    """The row of task `key` of a kind. Raises LabError if there is no such task."""
    row = kind(of)
    if key in row.tasks:
        return row.tasks[key]
    if row.any_task and key:
        return replace(row.tasks[row.task], key=key, label=key, goal={}, of_algorithm={},
                       help=row.tasks[row.task].help if row.elsewhere else "A Gymnasium environment.")
    _elsewhere("task", key, of, [other.key for other in KINDS.values() if key in other.tasks])
    raise LabError(f"There is no task {quoted(key)}: {suggestion(key, list(row.tasks))}")
