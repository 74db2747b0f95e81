"""A choice: one of several functions that an algorithm may name for one part of its step, declared as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from labcore.catalog.knob import suggestion
from labcore.errors import LabError, quoted


@dataclass(frozen=True)
class Choice:
    """One member of a family: its key is the name of a function in the family's module.

    `needs` are the knobs that its function asks for: only algorithms that have them can choose it. The other fields
    say what a step must know of it beforehand, and each is of one family: `level`, what an advantage or a ratio is made
    for (one number per completion, "sequence", or one per token, "token"); `group`, that an advantage compares
    completions of one prompt; `critic`, that it asks for values; `by_part`, that it compares each named reward by
    itself; `constant`, that it is the same for all completions; `rollouts`, further completions that it asks for;
    `needs_ratio`, that a surrogate is one of a ratio to the old policy; `own_ratio`, which one it takes, where that is
    not the run's to choose (the chosen one is then the KL's alone); `log_bounds`, that its clip bounds are those of the
    ratio's logarithm; `cut`, the function beside it that says which
    tokens it cuts off; `refills`, that groups of which nothing is kept are sampled again; `once`, that pairs are made
    before the first step; `from_file`, that they are the task's own; `reference`, that a preference loss compares with
    a reference; `whole_batch`, that its numbers depend on all of the batch; `differences`, that it looks at the
    log-ratios of a pair in their difference alone; `pairwise`, that each is one pair's; `unpaired`, that it learns from
    single completions too; `every_token`, that it counts every token, also where LD-DPO weighs some down for others;
    `mismatched`, that it asks for their KL with other prompts; `scorer`, that a reward source asks for a trained reward
    model; `ensemble`, that it asks for several; `asks_user`, that it calls a function of the user's, which may be slow,
    cost money or count its calls: no picture asks it.
    """

    key: str
    label: str
    latex: str
    level: Literal["sequence", "token"] = "token"
    group: bool = False
    critic: bool = False
    by_part: bool = False
    constant: bool = False
    needs: tuple[str, ...] = ()
    rollouts: tuple[Literal["greedy"], ...] = ()
    needs_ratio: bool = False
    own_ratio: str = ""
    log_bounds: bool = False
    cut: str = ""
    refills: bool = False
    once: bool = False
    from_file: bool = False
    reference: bool = False
    whole_batch: bool = False
    differences: bool = False
    pairwise: bool = True
    unpaired: bool = False
    every_token: bool = False
    mismatched: bool = False
    scorer: bool = False
    ensemble: bool = False
    asks_user: bool = False


@dataclass(frozen=True)
class Family:
    """The choices for one part of a step: their module and its members.

    `provides` are the quantities that a step has for its functions, beside the knobs that a choice needs.
    """

    key: str
    label: str
    module: str
    provides: tuple[str, ...]
    members: tuple[Choice, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.key for member in self.members)

    def __getitem__(self, key: str) -> Choice:
        for member in self.members:
            if member.key == key:
                return member
        raise LabError(f"There is no {self.label} {quoted(key)}: {suggestion(key, self.names)}")
