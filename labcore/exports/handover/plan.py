"""The plan of a run for another tool, and the settings that its knobs become there.

A tool's rules are a table, knob → rule, for each loop. A rule says with which settings the tool does the same, that it
does so by default, or that it cannot and what to do about it. Nothing is dropped in silence: a knob that no
rule knows is named as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from labcore.catalog import choices
from labcore.catalog.choice import Family
from labcore.catalog.inactive import reason
from labcore.catalog.knob import Value
from labcore.catalog.llm import environments
from labcore.catalog.llm.models import MODELS
from labcore.catalog.llm.optimizer import CONSTANT
from labcore.catalog.mix.row import idle
from labcore.errors import LabError
from labcore.runs.knob_history import KnobHistory
from labcore.runs.models import chats
from labcore.runs.spec.run_spec import RunSpec, knobs_of
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


Chosen = TypeVar("Chosen", bound=Value)
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


def lines(plan: Plan, rules: Rules, tool: str) -> list[Line]:
    """The line of each knob of the run in `tool`, in the catalog's order; of a mix without those of choices not
    taken. Knobs of a choice are the affair of its declaration, unless `rules` have one."""
    found = []
    for knob in knobs_of(plan.spec.row, plan.spec.task_row):
        if plan.spec.mix and idle(plan.spec.algorithm, knob.key, plan.spec.knobs):
            continue
        value = plan[knob.key]
        line = rules[knob.key](plan, value) if knob.key in rules else _of_choice(plan, knob.key, value, tool)
        found.append(replace(line, knob=knob.key, value=value))
    return _with_clashes(found)


def _with_clashes(found: list[Line]) -> list[Line]:
    """The lines, with a note where a later knob gives a setting another value, which counts."""
    last = {name: line for line in found for name in line.settings}
    said = []
    for line in found:
        lost = [f"the script sets {name} for {last[name].knob} instead" for name, value in line.settings.items()
                if last[name].settings[name] != value]
        said.append(replace(line, note="; ".join(filter(None, (line.note, *lost)))))
    return said


UNKNOWN = Line("", 0, {}, note="nothing is known of it there: look for it in the tool's documentation")


def _of_choice(plan: Plan, knob: str, value: Any, tool: str) -> Line:
    """The line of a choice's own knob: the settings that the members declare, or a note why there is no equivalent."""
    families = [family for family in choices.FAMILIES if knob in choices.own_knobs(family)]
    if not families:
        return UNKNOWN
    asking = [each for family in families for each in choices.chosen(family, plan.spec.knobs) if knob in each.needs
              or knob in (own.key for own in each.brings)]
    known = [there for each in asking if (there := each.there(tool))]
    for there in known:
        if knob in there.knobs:
            setting = there.knobs[knob]
            return Line("", value, {setting: value} if isinstance(setting, str) else setting(value))
    notes = [note for there in known if (note := there.lacks.get(knob, there.note))]
    rule = missing(notes[0] if notes else f"no equivalent in {tool}") if asking else built_in()
    return rule(plan, value)


def to(*names: str, note: str = "") -> Rule:
    """The knob under other names, its value as it is."""
    return lambda plan, value: Line("", value, dict.fromkeys(names, value), note=note)


def given(settings: Callable[[Plan, Any], Mapping[str, Any]], note: str | Callable[[Plan, Any], str] = "") -> Rule:
    """Settings that depend on the value; the note may too."""
    return lambda plan, value: Line("", value, settings(plan, value),
                                    note=note if isinstance(note, str) else note(plan, value))


def built_in(note: str = "") -> Rule:
    """The tool does the same by default."""
    return lambda plan, value: Line("", value, {}, built_in=True, note=note)


def missing(note: str) -> Rule:
    """The tool has nothing like it."""
    return lambda plan, value: Line("", value, {}, note=note)


def choice(table: Mapping[Chosen, tuple[Mapping[str, Any], str]], otherwise: str) -> Rule:
    """For each choice its settings and a note; `otherwise` for one that the table does not have.

    Settings that are empty without a note are what the tool does anyway.
    """
    def rule(plan: Plan, value: Any) -> Line:
        settings, note = table.get(value, ({}, otherwise))
        return Line("", value, settings, built_in=value in table and not settings and not note, note=note)

    return rule


def choices_of(family: Family[Any], tool: str, otherwise: str, setting: str = "") -> Rule:
    """A rule for the choice of a family in `tool`, from the declarations of its members. `setting` takes their names
    there. `otherwise` says what the tool does for a member that declares nothing."""
    def rule(plan: Plan, value: Any) -> Line:
        there = family[str(value)].there(tool)
        if there is None:
            return Line("", value, {}, note=f"no equivalent: {otherwise}")
        settings = {setting: there.name} | dict(there.settings) if setting and there.name else there.settings
        return Line("", value, settings, built_in=not settings and not there.note, note=there.note)

    return rule


def learns_answers(plan: Plan) -> bool:
    """Whether the run learns the task's own answers beside its pairs."""
    return plan.loop == "preference" and any(
        each.own_answer for each in choices.chosen(choices.PREFERENCE_LOSS, plan.spec.knobs))


def pairs_of(more: str = "") -> Rule:
    """A rule for the source of pairs: the scripts sample them once, before training. `more`: an alternative there."""
    def rule(plan: Plan, value: Any) -> Line:
        note = "the pairs are sampled once, before training" + (f": {more}" if more else "")
        source = choices.PAIRS[str(value)]
        note += "; the last trainer of such pairs is TRL 1.9.0's XPOTrainer" if source.opposed else ""
        same = source.once or source.from_file
        return Line("", value, {}, built_in=same, note="" if same else note)

    return rule


def only_with(knob: str, value: str, rule: Rule) -> Rule:
    """`rule` where the run's `knob` has that value; with another one the setting says nothing."""
    return lambda plan, own: rule(plan, own) if plan.get(knob) == value else Line("", own, {}, built_in=True)


def only_between(setting: str, note: Callable[[Plan, Any], str] = lambda plan, value: "") -> dict[str, Rule]:
    """Both bounds of the shaping clipped_between as the one setting."""
    both = only_with("shaping", "clipped_between", given(
        lambda plan, value: {setting: (plan["reward_low"], plan["reward_high"])}, note))
    return {"reward_low": both, "reward_high": both}


def acting(rule: Rule, knob: str) -> Rule:
    """`rule`, unless `knob` has no effect on the run with its other knobs."""
    return lambda plan, value: (Line("", value, {}, built_in=True) if reason(knob, plan.spec.knobs)
                                else rule(plan, value))


def switch(rule: Rule, *at: Any) -> Rule:
    """`rule`, unless the switch has one of the values at which it is off."""
    return lambda plan, value: Line("", value, {}, built_in=True) if value in at else rule(plan, value)


def bounds(name: str, exact: str, high: str) -> dict[str, Rule]:
    """Both bounds of bad tokens as the one setting `name`, which has the smaller of them. It is the knob `exact`; the
    other one is the same above 1 + `high`."""
    def rule(knob: str) -> Rule:
        other = "" if knob == exact else f"the same wherever it is above 1 + {high}"
        return lambda plan, value: Line("", value, {name: value}, note=other) if value == plan.bound else Line(
            "", value, {}, note=f"in {name}, the smaller of the two bounds")
    return {knob: only_with("surrogate", "bounded_clip", switch(rule(knob), 0.0)) for knob in ("clip_delta",
                                                                                               "dual_clip")}


def aggregated(fixed: Callable[[Plan], str], by: str, rule: Rule) -> Rule:
    """`rule`, unless the tool's loss aggregates in one way only: that which `fixed` gives, by its setting `by`."""
    def own(plan: Plan, value: Any) -> Line:
        way = fixed(plan)
        if not way:
            return rule(plan, value)
        return Line("", value, {}, built_in=value == way, note="" if value == way else f"always {way}, by its {by}")
    return own


FILTERS = ("min_p", "repetition_penalty")  # of sampled tokens, beside top_k and top_p

# The knobs of the tasks are constants of the data set and the reward, which every script brings with it.
IN_THE_CODE = built_in("in the code below")
MEASURED = missing("the lab's own measurement by sampling: evaluate the saved model afterwards")
_HELD_OUT = missing("the code below takes every row of your file: remove those that you want to evaluate on")
_OF_TURNS = {knob.key: knob for task in environments.ROWS for knob in task.knobs}
TASK_RULES: Rules = {
    "held_out": switch(_HELD_OUT, 0.0), "held_out_file": switch(_HELD_OUT, ""), **dict.fromkeys(
        ("held_out_every", "held_out_prompts", "held_out_samples"), MEASURED),
    "unusable_rows": switch(missing("the code below stops at a row that cannot be used: remove those rows"), "stop"),
    "long_prompts": switch(missing("the code below takes prompts of any length: shorten or remove the long ones"),
                           "stop"),
    "order": missing("the code below draws rows at random, none twice while there are enough"),
    **dict.fromkeys(("letters", "digits", "reward_shape", "verifier", "pattern", "length_low", "length_high",
                     "prompt_length", "piece_length", "label_temperature", "numbers", *_OF_TURNS), IN_THE_CODE),
    "easiest": switch(missing("the code below makes prompts of the highest level only: draw a level for each prompt "
                              "there"), 0),
    "fields": IN_THE_CODE}
_TURNS = "the prompts below are plain text: where the model has a chat template, write each as a list of turns"


def _template(plan: Plan, value: Any) -> Line:
    if value == "chatml":
        return Line("", value, {}, built_in=True, note="the tokenizer in the run's export has it")
    known = plan.chat or value == "off" or plan.spec.model in MODELS
    return (built_in("in the code below") if known else missing(_TURNS))(plan, value)


PROMPT_RULES: Rules = {
    "template": _template, "system_prompt": IN_THE_CODE,
    "thinking": switch(missing("give enable_thinking to the chat template"), "auto"),
    "begins_with": switch(missing("append it to each prompt below, after the template"), "")}
BASE = missing("the base was made before the run: what is trained here starts from the model that you give")
IN_SCORE = "write it into score() below"
SCRIPTS = "verl"  # all scripts have one function for rewards: a source becomes the same in each
REWARD_RULES: Rules = {
    "reward_source": choices_of(choices.REWARD, SCRIPTS, "let score() below give these rewards"),
    **dict.fromkeys(("reward_function", "reward_weights"), only_with("reward_source", "own_function", switch(
        missing(IN_SCORE), ""))),
    "reward_model": lambda plan, value: (missing(IN_SCORE) if choices.needs_reward_model(plan.spec.knobs)
                                         else built_in())(plan, value),
    **dict.fromkeys(("judge_url", "judge_model", "judge_instruction"), lambda plan, value: (
        switch(missing(IN_SCORE), "") if "judge" in choices.sources_of(plan.spec.knobs) else built_in())(plan, value)),
    **dict.fromkeys(("stop_kl", "stop_gold_fall"), switch(missing("no early stopping there: watch the KL and your own "
                                                                  "evaluation"), 0.0))}
_ADD = "add the labelled pairs to those below: their file is kept in uploads/ under that name"
LABELS: Rules = {  # of a reward model
    "labelled_pairs": switch(missing(_ADD), ""),
    "labelled_share": lambda plan, value: Line("", value, {}, built_in=not plan["labelled_pairs"],
                                               note=_ADD if plan["labelled_pairs"] else "")}


def adapter(rank: Rule, alpha: Rule) -> Rules:
    """The knobs of LoRA by these rules; where it is off they say nothing."""
    return {"lora_rank": switch(rank, 0),
            "lora_alpha": lambda plan, value: alpha(plan, value) if plan.get("lora_rank") else built_in()(plan, value)}


BY_VLLM = "vLLM samples and rounds differently from the trainer: importance_cap corrects that"
ALL_LINEAR = "on all linear layers there, not only those of attention"
UPKEEP_RULES: Rules = {  # pictures and checkpoints of the lab: nothing that is learnt
    "probes": built_in(), "ladder_mb": built_in("checkpoints are the tool's own: set how many it keeps there"),
    "gpu_share": built_in("memory is the tool's own matter: its batch sizes set it")}


def _teacher(plan: Plan, value: Any) -> Line:
    """The teacher for a trainer that takes none."""
    rule = missing("this trainer takes no teacher") if choices.needs_teacher(plan.spec.knobs) else built_in()
    return rule(plan, value)


def _context_share(plan: Plan, value: Any) -> Line:
    """The line of the share of prompts with a context, in a run of SFT or in the SFT of the run's base."""
    rule = missing("no row below has a context") if plan.loop == "sft" and value else built_in("of the base alone")
    return rule(plan, value)


CONTEXT_RULES: Rules = {  # of a teacher that sees the prompt alone
    "single_step": switch(missing("each token is graded by the log-ratio of the sampled token alone"), False),
    "teacher_context": switch(missing("the teacher sees the prompt alone there"), "nothing"),
    **dict.fromkeys(("context_template", "feedback_template"), built_in()), "context_share": _context_share}
TEACHER_RULES: Rules = {
    "teacher": _teacher, **CONTEXT_RULES,
    "on_policy_share": switch(missing("this trainer learns only from the answers in the rows below"), 0.0),
    "answers": switch(missing("the rows below have the task's answers: replace them with answers of your teacher"),
                      "given")}
BASE_RULES: Rules = {"sft_target": BASE, "sft_steps": BASE, **PROMPT_RULES, **UPKEEP_RULES, **TEACHER_RULES}
