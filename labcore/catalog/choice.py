"""A choice: one of several functions that an algorithm may name for one part of its step, declared as data.

A declaration says everything that the rest of the lab needs to know of a choice: its equation, its knobs, what it logs,
what it becomes in other tools, when its knobs have no effect, what to beware of, how its number is worked out. Pages,
commands and scripts walk the declarations, so none of them knows a choice by its name. What a declaration leaves out
is missing there in words: a number without its arithmetic, "no equivalent".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Generic, Literal, TypeVar

from labcore.catalog.knob import Knob, Value, suggestion
from labcore.catalog.metric import Metric
from labcore.catalog.worked import Numbers, Worked
from labcore.errors import LabError, quoted


@dataclass(frozen=True)
class Letter:
    """A letter in the equation of a choice that no other quantity has. `means` is the LaTeX that defines it, written
    behind the equation; `label` names it where it can be pointed at."""

    written: str
    means: str = ""
    label: str = ""


@dataclass(frozen=True)
class Rule:
    """`knobs` have no effect while each knob of `at` has one of the values given there, and `also` says so of all
    values; `why` ends "No effect: …"."""

    knobs: tuple[str, ...]
    at: Mapping[str, tuple[Value, ...]]
    why: str
    also: Callable[[Mapping[str, Value]], bool] = lambda values: True

    def holds(self, values: Mapping[str, Value]) -> bool:
        """True if none of `knobs` has an effect at these values, which have one of them."""
        return self.also(values) and all(other in values and values[other] in stops for other, stops in self.at.items())


@dataclass(frozen=True)
class Caution:
    """A caution for mixes with this choice, shown while `holds` is true of all knobs of its loop."""

    text: str
    holds: Callable[[Mapping[str, Any]], bool] = lambda values: True


@dataclass(frozen=True)
class There:
    """The settings that stand for a choice in other tools, which are named in `tools`: "GRPOTrainer" (TRL), "verl",
    "OpenRLHF", "ms-swift".

    `settings` are those that stand for it; none and no `note`: the tool does so by itself. `note` says what is
    different there. `name` is what the tool calls the choice, where one setting has that name as its value. `knobs` are
    the names of the settings for the choice's own knobs, or functions from their values to settings; `lacks` says why
    there is no setting for others. `aggregates` is the aggregation that the tool's loss always has. `takes` are other
    knobs that the tool has with this choice, `refuses` those with which it fails.
    """

    tools: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    name: str = ""
    knobs: Mapping[str, str | Callable[[Any], Mapping[str, Any]]] = field(default_factory=dict)
    lacks: Mapping[str, str] = field(default_factory=dict)
    aggregates: str = ""
    takes: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Choice:
    """One member of a family: its key is the name of a function in the family's module.

    `knobs` are its own: only algorithms that have them can choose it; rows that choose it and all mixes have them.
    `asks` are the loop's knobs that its function asks for beside them. `sign` is its letter in an equation, where
    that is not the whole `latex`; `letters` are those that need words. `bias` says how it keeps the mean gradient from
    the objective's: another length only ("Scale: …") or another direction ("Direction: …"). `worked` is the arithmetic
    of its number. `trainer` is TRL's trainer for runs with it, where the family's usual one does not fit.
    """

    key: str
    label: str
    latex: str
    _: KW_ONLY
    knobs: tuple[Knob, ...] = ()
    asks: tuple[str, ...] = ()
    sign: str = ""
    letters: tuple[Letter, ...] = ()
    rules: tuple[Rule, ...] = ()
    cautions: tuple[Caution, ...] = ()
    bias: str = ""
    elsewhere: tuple[There, ...] = ()
    trainer: str = ""
    worked: Callable[[Numbers], Worked] | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The keys of all knobs that its function asks for."""
        return (*self.asks, *(knob.key for knob in self.knobs))

    @property
    def brings(self) -> tuple[Knob, ...]:
        """The knobs that a row has because it chooses this."""
        return self.knobs

    @property
    def logs(self) -> tuple[Metric, ...]:
        """The metrics that a run with it logs, and no other."""
        return ()

    def there(self, tool: str) -> There | None:
        """Its settings in a tool; None where nothing is declared."""
        return next((each for each in self.elsewhere if tool in each.tools.split()), None)


@dataclass(frozen=True, eq=False)
class Reward(Choice):
    """A source of rewards. `words` says in a sentence where they come from, with knobs in braces. `scorer`: it asks for
    a trained reward model, `ensemble` for several. `asks_user`: it calls a function of the user's, which may be slow,
    cost money or count its calls, so no picture asks it. `proxy`: the task's own score is logged beside it as gold.
    `binary`: rewards are 0 or 1. `parts`: it has several named rewards. `process`: it scores the steps of answers; with
    `scorer` by a trained model of steps. `known`: the mean reward of every completion is known. `one_turn`: it reads a
    completion as one answer, so it cannot reward the episodes of a task with several turns."""

    words: str = ""
    scorer: bool = False
    ensemble: bool = False
    asks_user: bool = False
    proxy: bool = False
    binary: bool = False
    parts: bool = False
    process: bool = False
    known: bool = False
    one_turn: bool = False


@dataclass(frozen=True, eq=False)
class Selection(Choice):
    """A rule that selects the completions to learn from. `kept` is the LaTeX of its condition. `group`: it compares
    completions of one prompt. `refills`: groups of which no completion is kept are sampled again. `ranks`: it ranks
    completions by their total reward."""

    kept: str = ""
    group: bool = False
    refills: bool = False
    ranks: bool = False


WHITEN = Knob(
    "whiten_advantages", "Whiten advantages", True, "On: advantages get mean 0 and standard deviation 1 in each "
    "batch, so the step does not depend on the reward's size. Off: it does.", "live", advanced=True,
    group="advantage")
# The knobs of a critic and of the advantages that are computed with it.
CRITIC = (
    Knob("critic_learning_rate", "Critic learning rate", 1e-3, "Higher: the critic follows the policy faster. Lower: "
         "a steadier, staler baseline.", "live", 0.0, 1.0, (1e-4, 3e-3), r"\eta_V", scale="log", group="advantage"),
    Knob("value_clip", "Value clip", 0.2, "Higher: the critic may move further per batch. Lower: more careful, "
         "slower.", "live", 0.0, 1e6, (0.1, 1.0), r"\varepsilon_V", "reward", advanced=True, group="advantage"),
    WHITEN,
    Knob("whiten_rewards", "Whiten rewards", False, "On: token rewards, including the KL penalty, are scaled to "
         "standard deviation 1 in each batch before the critic's advantages are computed; their mean is kept. Off: no "
         "scaling.", "live", advanced=True, group="advantage"),
)


@dataclass(frozen=True, eq=False)
class Advantage(Choice):
    """A baseline. `level`: one number per completion ("sequence") or per token. `group`: it compares completions of one
    prompt. `nonnegative`: it is never below 0. `critic`: it asks for values, so a row with it has the knobs of a
    critic. `squares`: it asks for the sum of squared probabilities at each token. `of_prompt`: it compares with a
    number that the run keeps for each prompt, by this function of `labcore.llm.prompt_values`. `by_part`: it compares
    each named reward by itself. `constant`: it is the same for all completions. `rollouts`: further completions that it
    asks for, greedy or from the mixture of policy and reference. `scaled`: it is divided by a spread. `against` says of
    what the baseline is: the "batch" or the "group"; where advantages are whitened, `exact` that nothing else is
    different then. `alone` is its bias with one prompt a batch, where that is another one. `teacher`: it asks for a
    teacher's log-probs, and not for rewards."""

    level: Literal["sequence", "token"] = "token"
    _: KW_ONLY
    group: bool = False
    nonnegative: bool = False
    critic: bool = False
    squares: bool = False
    of_prompt: str = ""
    by_part: bool = False
    constant: bool = False
    rollouts: tuple[Literal["greedy", "mixture"], ...] = ()
    scaled: bool = False
    against: Literal["batch", "group", ""] = ""
    exact: bool = False
    alone: str = ""
    teacher: bool = False

    @property
    def brings(self) -> tuple[Knob, ...]:
        return (*self.knobs, *(CRITIC if self.critic else (WHITEN,) if self.teacher else ()))

    def bias_of(self, knobs: Mapping[str, Any]) -> str:
        """Its bias in a run with these knobs."""
        return self.alone if self.alone and int(knobs["prompts_per_step"]) == 1 else self.bias


@dataclass(frozen=True, eq=False)
class Normalisation(Choice):
    """A normalisation of advantages to one scale."""


@dataclass(frozen=True, eq=False)
class Ratio(Choice):
    """A ratio of new to old policy. `level`: of tokens or of whole sequences. `whole`: all tokens of a completion share
    its gradient. `product`: it is the product over tokens, so each token has the gradient of all of them. `near_one`:
    it stays near 1, as a mean of many ratios does."""

    level: Literal["sequence", "token"] = "token"
    _: KW_ONLY
    whole: bool = False
    product: bool = False
    near_one: bool = False

    @property
    def letter(self) -> str:
        return self.sign or r"\rho_t"


@dataclass(frozen=True, eq=False)
class Surrogate(Choice):
    """A surrogate, which is maximised. `needs_ratio`: it is a function of a ratio to the old policy; `own_ratio`: of
    which, where that is not the run's choice (the chosen ratio is then the KL's alone). `weighs`: the ratio is a fixed
    weight of the log-probability, or only pulls at it, so where it is 1 the gradient is that of the log-probability.
    `whole`: it is one number for all tokens of a completion; `summed`: of the sum of their log-probs, so that each
    token has the gradient of all of them, and another policy may have sampled. `log_bounds`: its clip bounds are those
    of the ratio's logarithm. `cut` is the function beside it that says which tokens it cuts off; `singles_out` is the
    one that finds the tokens of a whole update that it treats in another way. `group`: it compares the completions of a
    group. `absorbs` are the weights of tokens
    (`labcore.maths.weights`) that it takes in itself, in place of being multiplied by them, each with the LaTeX of
    where it enters. `metric` describes its mean, which every run with it logs."""

    needs_ratio: bool = False
    own_ratio: str = ""
    weighs: bool = False
    whole: bool = False
    summed: bool = False
    log_bounds: bool = False
    cut: str = ""
    singles_out: str = ""
    group: bool = False
    absorbs: Mapping[str, str] = field(default_factory=dict)
    metric: Metric | None = None

    @property
    def through_ratio(self) -> bool:
        """True if a token's gradient goes through its ratio."""
        return self.needs_ratio and not self.weighs and not self.whole

    @property
    def logs(self) -> tuple[Metric, ...]:
        unit = "advantage × nats" if self.weighs else "advantage"
        plain = Metric(f"surrogate/{self.key}", f"Surrogate, {self.key.replace('_', ' ')}", unit,
                       f"Mean over tokens of the surrogate: {self.label}.")
        return (self.metric or plain,) if self.needs_ratio else ()


@dataclass(frozen=True, eq=False)
class KL(Choice):
    """An estimate of the KL to the reference. `by_ratio`: it is weighed by the chosen ratio. `in_reward`: subtracted
    from the reward it gives the gradient of the KL. `later` is its bias from the second update of a batch on."""

    by_ratio: bool = False
    in_reward: bool = False
    later: str = ""


@dataclass(frozen=True, eq=False)
class Aggregation(Choice):
    """An aggregation of the terms of tokens to one number. `own_length`: it divides the terms of each completion by its
    length. `sums`: it adds up a completion's tokens. `of_product` is its bias if the ratio is a product over tokens."""

    own_length: bool = False
    sums: bool = False
    of_product: str = ""


@dataclass(frozen=True, eq=False)
class PreferenceLoss(Choice):
    """A loss of chosen and rejected completions. `reference`: it compares with a reference. `whole_batch`: its numbers
    depend on all of the batch. `differences`: it looks at the log-ratios of a pair in their difference alone; `apart`:
    at those of policy and reference apart. `pairwise`: each is one pair's. `unpaired`: it learns from single
    completions too. `every_token`: it counts every token, also where LD-DPO weighs some down for others. `mismatched`:
    it asks for the KL of completions with other prompts. `trains`: the margin, both sides each by itself, the margin
    and the chosen side, the chosen side alone, or the task's own answer. `own_answer`: it learns that answer, a third
    completion beside the pair. `opposed`: it asks which side the reference wrote. `any_divergence`: other divergences
    were derived for it. `term` is what its term is called that counts every token, where LD-DPO weighs some down."""

    reference: bool = False
    whole_batch: bool = False
    differences: bool = False
    apart: bool = False
    pairwise: bool = True
    unpaired: bool = False
    every_token: bool = False
    mismatched: bool = False
    own_answer: bool = False
    opposed: bool = False
    trains: Literal["margin", "sides", "margin and chosen", "chosen", "answer", "opponent"] = "margin"
    any_divergence: bool = False
    term: str = ""


@dataclass(frozen=True, eq=False)
class SftLoss(Choice):
    """A loss of the tokens of answers. `teacher`: it compares the policy's distribution with a teacher's."""

    teacher: bool = False


@dataclass(frozen=True, eq=False)
class TeacherContext(Choice):
    """A context that a teacher reads in addition to the prompt. `group`: it may be another completion of the same
    prompt. `feedback`: it may be the task's feedback on a completion."""

    group: bool = False
    feedback: bool = False


@dataclass(frozen=True, eq=False)
class Pairs(Choice):
    """A source of pairs. `once`: they are made before the first step; `from_file`: they are the task's own;
    `each_step`: the policy samples them at every step; `opposed`: one side each, the reference the other."""

    once: bool = False
    from_file: bool = False
    each_step: bool = False
    opposed: bool = False


@dataclass(frozen=True, eq=False)
class StepLabels(Choice):
    """A source of labels for the steps of answers. `from_file`: answers and labels are the file's own."""

    from_file: bool = False


C = TypeVar("C", bound=Choice)


@dataclass(frozen=True, eq=False)
class Family(Generic[C]):
    """The choices for one part of a step: their module and its members.

    `provides` are the quantities that a step has for its functions, beside the knobs that a choice needs.
    """

    key: str
    label: str
    module: str
    provides: tuple[str, ...]
    members: tuple[C, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.key for member in self.members)

    def __getitem__(self, key: str) -> C:
        for member in self.members:
            if member.key == key:
                return member
        raise LabError(f"There is no {self.label} {quoted(key)}: {suggestion(key, self.names)}")

    def __iter__(self) -> Iterator[C]:
        return iter(self.members)
