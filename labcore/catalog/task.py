"""The row of a task in the catalog, whatever learns it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from labcore.catalog.knob import Knob, Value

TURNS = "max_turns"  # the knob of every task with several turns


@dataclass(frozen=True)
class Task:
    """A row of a task table: what is to be learnt.

    `source` names what makes it ("module:name"): of a text task the class with prompts, SFT examples and verdicts, of
    a maze the function that builds it, of an environment nothing; it is imported only where it is needed. `loops` are
    the loops that it can feed. `data` is the kind of file the user brings, if any: "prompts", "preferences" or "text";
    `pairs` says that it brings preference pairs. `defaults` are the task's own defaults of the algorithm's knobs,
    `sft`, `online`, `reward_model` and `prm` those of these loops on top, `of_algorithm` those of single algorithms
    by their keys. `scorer` names the reward model for its answers that comes with the lab, if any. `example` is
    "prompt → right answer", with " → wrong one" where the task brings that as well. `right` is what a right completion
    has passed, as a label, where no verifier is chosen (`labcore.catalog.right`).

    `cautions` say by an algorithm's key why it learns the task badly.

    `sees` and `goal` are parts of the sentence that describes the task (`labcore.catalog.goal`): "The model `sees`
    {prompt}, `goal`." `goal` has an entry for each value of the knob that decides what earns reward, and "" for all
    others.

    `graded` are the values of this knob for which a completion may get a reward between 0 and 1; "" means always.
    """

    key: str
    label: str
    help: str
    source: str
    loops: tuple[str, ...]
    knobs: tuple[Knob, ...] = ()
    data: str = ""
    verifiable: bool = True
    pairs: bool = False
    defaults: Mapping[str, Value] = field(default_factory=dict)
    sft: Mapping[str, Value] = field(default_factory=dict)
    online: Mapping[str, Value] = field(default_factory=dict)
    reward_model: Mapping[str, Value] = field(default_factory=dict)
    prm: Mapping[str, Value] = field(default_factory=dict)
    scorer: str = ""
    example: str = ""
    of_algorithm: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    cautions: Mapping[str, str] = field(default_factory=dict)
    right: str = "Exact match"
    sees: str = "sees"
    goal: Mapping[str, str] = field(default_factory=lambda: {"": "must write {answer}, and earns 1 if exact"})
    graded: tuple[str, ...] = ()

    def all_or_nothing(self, knobs: Mapping[str, Value]) -> bool:
        """True if the verifier gives 1 to right completions and 0 to all others."""
        return not self.has_turns and not {"", *(str(knobs.get(knob.key)) for knob in self.knobs)} & {*self.graded}

    @property
    def has_turns(self) -> bool:
        """True if an environment answers each turn of the model."""
        return any(knob.key == TURNS for knob in self.knobs)

    def own(self, loop: str, algorithm: str) -> Mapping[str, Value]:
        """The task's own defaults of the knobs of an algorithm with this loop."""
        of = {"sft": self.sft, "online": self.online, "reward_model": self.reward_model, "prm": self.prm}
        return {**self.defaults, **of.get(loop, {}), **self.of_algorithm.get(algorithm, {})}
