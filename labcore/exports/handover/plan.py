"""The plan of a run for another tool: the values of its knobs at its end, and the other facts that scripts need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from labcore.catalog import choices
from labcore.catalog.knob import Value
from labcore.catalog.llm.optimizer import CONSTANT
from labcore.errors import LabError
from labcore.runs.knob_history import KnobHistory
from labcore.runs.models import chats
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.store import Store

MODEL, MERGED = "checkpoint", "merged"  # folders in a run's export
MOST_ROWS = 100_000  # prompts written to a data set; more steps go through them again
_BATCHES = {"online": "prompts_per_step", "prm": "prompts_per_step", "preference": "pairs_per_step",
            "reward_model": "pairs_per_step", "sft": "sequences_per_step"}


@dataclass(frozen=True)
class Line:
    """A knob in another tool: the `settings` that stand for it; else whether the tool does so by itself (`built_in`),
    else nothing. `note` says what is different there and what to do."""

    knob: str
    value: Value
    settings: Mapping[str, Any]
    built_in: bool = False
    note: str = ""

    @property
    def unsupported(self) -> bool:
        return not self.settings and not self.built_in


@dataclass(frozen=True)
class Plan:
    """The run `run`; `spec` has its knobs as they were at its end. A `chat` run writes prompts by a chat template."""

    run: str
    spec: RunSpec
    chat: bool = False

    def __getitem__(self, knob: str) -> Any:
        return self.spec.knobs[knob]

    def get(self, knob: str, default: Any = None) -> Any:
        """The value of a knob that not every algorithm has."""
        return self.spec.knobs.get(knob, default)

    @property
    def loop(self) -> str:
        return self.spec.row.loop

    @property
    def steps(self) -> int:
        """The steps that the run itself makes."""
        return self.spec.steps - (self.spec.parent[1] if self.spec.parent else 0)

    @property
    def model(self) -> str:
        """The folder of the run's export that holds a whole model: of LoRA not the adapter alone."""
        return MERGED if self.get("lora_rank") else MODEL

    @property
    def passes(self) -> int:
        """Passes over each batch."""
        return int(self.get("updates_per_batch", 1))

    @property
    def parts(self) -> int:
        """Optimizer updates of each pass."""
        return int(self.get("mini_batches", 1))

    @property
    def bound(self) -> float:
        """The bound of the ratio of a bad token: the smaller of the dual clip and the two-sided one; 0 is none."""
        bounds = (self["clip_delta"], self["dual_clip"]) if self.get("surrogate") == "bounded_clip" else ()
        return float(min(filter(None, bounds), default=0.0))

    @property
    def critic(self) -> bool:
        """Whether the run trains a critic."""
        return any(each.critic for each in choices.chosen(choices.ADVANTAGE, self.spec.knobs))

    @property
    def scheduler(self) -> str:
        """The learning rate schedule under the name that transformers has for it."""
        schedule = str(self["schedule"])
        return f"{CONSTANT}_with_warmup" if schedule == CONSTANT and self["warmup_steps"] else schedule

    @property
    def betas(self) -> tuple[float, float]:
        """Adam's two."""
        return float(self["adam_beta1"]), float(self["adam_beta2"])

    @property
    def batch(self) -> int:
        """Prompts, pairs or sequences of a step."""
        return int(self[_BATCHES[self.loop]])

    @property
    def rows(self) -> int:
        """Rows of a data set for all steps: whole batches, and no more than MOST_ROWS unless one batch is."""
        return self.batch * max(1, min(self.steps, MOST_ROWS // self.batch))

    @property
    def episodes(self) -> int:
        """The number of passes over a data set of `rows`."""
        return -(-self.steps * self.batch // self.rows)


Rule = Callable[[Plan, Any], Line]
Rules = Mapping[str, Rule]


def plan_of(store: Store, run_id: str) -> Plan:
    """The plan of a run. Raises LabError if there is no such run, or it is not one of a language model."""
    row = store.run(run_id)
    if row.spec.task_row.has_turns and row.spec.row.loop != "online":
        raise LabError(f"There is no script for {run_id}, because it learns from given episodes, and other tools learn "
                       "only from episodes that they play: choose a run of an online algorithm.")
    if not fits(row.spec):
        raise LabError(f"{run_id} is not a run of a language model, and only these have scripts for other "
                       "tools: choose another run.")
    knobs = KnobHistory(row.spec, store.events_after(run_id)).at(row.step)
    return Plan(run_id, replace(row.spec, knobs=knobs), chats(run_id, row.spec))


def fits(spec: RunSpec) -> bool:
    """Whether other tools train what this run trains."""
    return spec.kind == "llm" and spec.row.loop in _BATCHES and (
        spec.row.loop == "online" or not spec.task_row.has_turns)


def learns_answers(plan: Plan) -> bool:
    """Whether the run learns the task's own answers beside its pairs."""
    return plan.loop == "preference" and any(
        each.own_answer for each in choices.chosen(choices.PREFERENCE_LOSS, plan.spec.knobs))
