"""Check that knobs fit each other, the algorithm and the task, before a run and at every change."""

from __future__ import annotations

from collections.abc import Mapping

from labcore.catalog import choices, reward_terms
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.families.distillation import SELF
from labcore.catalog.knob import Value
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.mix.row import can_be_mixed
from labcore.catalog.task import Task
from labcore.errors import LabError, quoted
from labcore.runs.files import uploads
from labcore.runs.spec import judge_address, model_names

# Knobs that are the two ends of a range, which is empty where they are swapped.
RANGES = (("length_low", "length_high"), ("band_low", "band_high"), ("cov_low", "cov_high"))


def check_together(row: Algorithm, knobs: Mapping[str, Value]) -> None:
    """Check the knobs that depend on each other, before a run and at every change of a knob. Raises LabError if
    settings contradict each other; the message names settings that do not."""
    _check_choices(row, knobs)
    _check_losses(row, knobs)
    _check_opponent(row, knobs)
    _check_rewards(knobs)
    if knobs.get("compile") and knobs.get("gradient_checkpointing"):
        raise LabError("`compile` and `gradient_checkpointing` do not go together: switch `compile` off to save "
                       "memory, or `gradient_checkpointing` to save time.")
    if row.loop == "online":
        group, prompts = int(knobs["group_size"]), int(knobs["prompts_per_step"])
        compares = [family[str(knobs[family.key])] for family in (choices.ADVANTAGE, choices.SELECTION,
                                                                  choices.SURROGATE)]
        if group < 2 and any(choice.group for choice in compares):
            raise LabError(f"`group_size` is {group}, but {row.label} compares completions of one prompt with each "
                           "other: use 2 or more.")
        _check_advantage(knobs)
        parts = int(knobs.get("mini_batches", 1))
        if prompts % parts:
            fitting = [n for n in range(1, prompts + 1) if prompts % n == 0]
            near = sorted(sorted(fitting, key=lambda n: abs(n - parts))[:3])
            raise LabError(f"`mini_batches` {parts} does not divide the batch of {prompts} prompts (groups stay "
                           f"whole): use {', '.join(map(str, near[:-1])) + ' or ' if near[1:] else ''}{near[-1]}.")
        surrogate = choices.SURROGATE[str(knobs["surrogate"])]
        if surrogate.needs_ratio and choices.ratio_of(knobs).key == "none":
            raise LabError(f"The surrogate `{surrogate.key}` needs a ratio: set `ratio=token`, or "
                           "`surrogate=score_function`.")
        if surrogate.group and choices.ADVANTAGE[str(knobs["advantage"])].constant:
            raise LabError(f"The surrogate `{surrogate.key}` compares the completions of a group, and "
                           f"`advantage={knobs['advantage']}` is the same for all: set `advantage=group_mean`.")
        if surrogate.group and choices.SELECTION[str(knobs["selection"])].ranks:
            raise LabError(f"The surrogate `{surrogate.key}` compares the completions of a group, and "
                           f"`selection={knobs['selection']}` keeps one of them: set `selection=everything`.")
        _check_sampler(knobs)
    _check_ranges(knobs)


def _check_ranges(knobs: Mapping[str, Value]) -> None:
    if knobs.get("shaping") == "clipped_between" and float(knobs["reward_low"]) >= float(knobs["reward_high"]):
        raise LabError(f"`reward_low` {knobs['reward_low']:g} is not below `reward_high` {knobs['reward_high']:g}, so "
                       "every completion would have the same reward: set `reward_low` lower.")
    for low, high in RANGES:
        if low in knobs and float(knobs[low]) > float(knobs[high]):
            raise LabError(f"`{low}` {knobs[low]} is above `{high}` {knobs[high]}: swap them.")


def _check_sampler(knobs: Mapping[str, Value]) -> None:
    """Check that the lower bound of the weights for another sampler is not above the upper one, and that the weights
    are per token if the surrogate multiplies them into its own ratio."""
    cap, floor, mode = float(knobs["importance_cap"]), float(knobs["importance_floor"]), str(knobs["importance_mode"])
    if cap and floor > cap:
        raise LabError(f"`importance_floor` {floor:g} is above `importance_cap` {cap:g}, so no ratio is within them: "
                       f"set `importance_floor` to {cap:g} or less.")
    surrogate = choices.SURROGATE[str(knobs["surrogate"])]
    if cap and "sampler_correction" in surrogate.absorbs and mode.startswith("sequence"):
        raise LabError(f"The surrogate `{surrogate.key}` multiplies its own ratio by the weights of tokens: set "
                       "`importance_mode=token_truncate` or `importance_mode=token_mask`.")


def _check_advantage(knobs: Mapping[str, Value]) -> None:
    """Check that nothing is added to a total that the advantage does not look at, and that something is left of it."""
    chosen = choices.ADVANTAGE[str(knobs["advantage"])]
    if chosen.constant and knobs.get("normalisation", "none") != "none":
        raise LabError(f"The advantage `{chosen.key}` is the same for all completions, so "
                       f"`normalisation={knobs['normalisation']}` would make it 0: set `normalisation=none`.")
    if chosen.by_part:
        for key, lost, other in (("shaping", knobs["shaping"] != "none", "none"),
                                 ("kl_placement", knobs["kl_placement"] == "reward", "loss")):
            if lost:
                raise LabError(f"The advantage `{chosen.key}` compares each named reward by itself, so "
                               f"`{key}={knobs[key]}` would be lost: set `{key}={other}`.")


def _check_choices(row: Algorithm, knobs: Mapping[str, Value]) -> None:
    """Check that the functions which the choices name find the knobs that they ask for."""
    for family in choices.FAMILIES:
        if family.key not in knobs:
            continue
        chosen = family[str(knobs[family.key])]
        if missing := [key for key in chosen.needs if key not in knobs]:
            able = [other.label for other in ALGORITHMS.values()
                    if {family.key, *chosen.needs} <= {knob.key for knob in other.knobs}]
            run = f"run {' or '.join(able[:3])}, " if able else ""
            mix = ", or make a mix of your own, which has every knob" if can_be_mixed(row) else ""
            needs = " and ".join(f"`{key}`" for key in missing)
            raise LabError(f"The {family.label} `{chosen.key}` needs {needs}, which {row.label} does not have: "
                           f"{run}choose another {family.label}{mix}.")


def _check_rewards(knobs: Mapping[str, Value]) -> None:
    """Check that rewards of the user's own are named, with a weight each, and that a judge has an address and a name.
    Whether this process may ask them is found out where they are asked."""
    if knobs.get("reward_source") == reward_terms.SOURCE:
        found = reward_terms.terms(str(knobs["reward_function"]))
        if not found:
            raise LabError("The reward source `own_function` adds up rewards of your own: choose them in "
                           "`reward_function`, or start the run with --reward FILE:function.")
        reward_terms.weights(str(knobs["reward_weights"]), len(found))
    if knobs.get("judge_url"):
        judge_address.address(str(knobs["judge_url"]))
    if reward_terms.JUDGE in choices.sources_of(knobs):
        for key in ("judge_url", "judge_model"):
            if not knobs[key]:
                raise LabError(f"The reward source `judge` needs `{key}`: set `{key}`, or give --judge URL "
                               "--judge-model NAME.")


def _check_losses(row: Algorithm, knobs: Mapping[str, Value]) -> None:
    """Check that a preference loss has the reference it compares with, and pairs where these are to be compared."""
    _check_reference(row, knobs)
    for name in choices.losses_of(knobs):
        loss = choices.PREFERENCE_LOSS[name]
        if loss.reference and "reference" not in row.models:
            able = [f"`{other.key}`" for other in choices.PREFERENCE_LOSS.members if not other.reference]
            raise LabError(f"The preference loss `{name}` compares with a reference, and {row.label} holds none: "
                           f"choose {', '.join(able[:-1])} or {able[-1]}, or run DPO.")
        if knobs["divergence"] != "reverse_kl" and loss.reference and not loss.differences:
            raise LabError(f"The preference loss `{name}` looks at each side by itself, and only in their difference "
                           "does the constant of another divergence cancel: set `divergence=reverse_kl`.")
        if loss.opposed and not choices.PAIRS[str(knobs["pairs"])].opposed:
            sources = " or ".join(f"`pairs={source.key}`" for source in choices.PAIRS if source.opposed)
            raise LabError(f"The preference loss `{name}` needs pairs with one completion of the reference: set "
                           f"{sources}.")
        if loss.mismatched and int(knobs["pairs_per_step"]) < 2:
            raise LabError(f"The preference loss `{name}` compares with completions of other prompts: set "
                           "`pairs_per_step` to 2 or more.")
        if knobs["pair_weighting"] and not loss.pairwise:
            raise LabError(f"The preference loss `{name}` has no number for each pair, so pairs cannot be weighted: "
                           "switch `pair_weighting` off, or choose another preference loss.")


def _check_opponent(row: Algorithm, knobs: Mapping[str, Value]) -> None:
    """Check that a run which compares the policy with completions of the reference has a reference."""
    needs = [each for family in (choices.PAIRS, choices.ADVANTAGE) for each in choices.chosen(family, knobs)
             if getattr(each, "opposed", False) or "mixture" in getattr(each, "rollouts", ())]
    if needs and "reference" not in row.models:
        raise LabError(f"`{needs[0].key}` compares the policy with completions of the reference, and {row.label} has "
                       "no reference: run another algorithm, such as dpo or grpo.")


def _check_reference(row: Algorithm, knobs: Mapping[str, Value]) -> None:
    """Check that there is a reference of its own where it is to follow the policy."""
    if not knobs.get("reference_every"):
        return
    if "reference" not in row.models:
        raise LabError(f"{row.label} holds no reference that could follow the policy: set `reference_every=0`.")
    if knobs.get("lora_rank"):
        raise LabError("With LoRA the reference is the frozen base itself, which cannot follow the policy: set "
                       "`reference_every=0` or `lora_rank=0`.")


class NoTeacher(LabError):
    """A run has no teacher to learn from."""

    def __init__(self) -> None:
        super().__init__("There is no teacher to learn from: set `teacher` to a run (RUN, RUN@STEP or RUN@best), or to "
                         "the folder or hub id of a Hugging Face model with the policy's vocabulary.")


def check_pairs(task_row: Task, knobs: Mapping[str, Value]) -> None:
    """Check that a task's own pairs come from a task that brings them, and others from one with a verifier."""
    fits = {choice.key: task_row.pairs if choice.from_file else task_row.verifiable for choice in choices.PAIRS.members}
    if "pairs" in knobs and not fits[str(knobs["pairs"])]:
        able = " or ".join(f"`pairs={key}`" for key, fit in fits.items() if fit)
        raise LabError(f"The source of pairs `{knobs['pairs']}` does not go with the task {task_row.key!r}: set "
                       f"{able}.")


def check_turns(task_row: Task, knobs: Mapping[str, Value]) -> None:
    """Check that episodes of several turns are rewarded by a source that reads them."""
    for source in choices.sources_of(knobs) if task_row.has_turns else ():
        if choices.REWARD[source].one_turn:
            raise LabError(f"The reward source `{source}` reads a completion as one answer, and {task_row.label} has "
                           "several turns: set `reward_source=verifier`, which rewards each turn as the environment "
                           "does.")


def check_uploads(knobs: Mapping[str, Value]) -> None:
    """Check that labelled pairs and a held-out file are named as uploads are; what is in them is read later."""
    for key, what, advice in (("labelled_pairs", "labelled pairs", "with --labels FILE, or the name that the command "
                               "label printed"), ("held_out_file", "held-out file", "with --held-out FILE")):
        place = str(knobs.get(key, ""))
        if place and not uploads.is_place(place):
            raise LabError(f"The {what} {quoted(place)} cannot be found, since an upload has another name: give the "
                           f"file {advice}.")


def pinned_teacher(row: Algorithm, knobs: Mapping[str, Value]) -> dict[str, Value]:
    """The name of a run's teacher with its checkpoint step; empty if the run has none or is its own teacher. Raises
    LabError if the run needs a teacher and names none, or the name is not that of a model."""
    if not choices.needs_teacher(knobs) or row.knob("teacher").choices:
        return {}
    name = str(knobs["teacher"])
    if name == SELF:
        if "reference" not in row.models:
            raise LabError(f"{row.label} has no reference model, so it cannot be its own teacher: name another model "
                           "in `teacher`.")
        return {}
    if not name:
        raise NoTeacher
    return {"teacher": model_names.pinned_teacher(name)}


def absent_teacher(row: Algorithm, knobs: Mapping[str, Value]) -> str:
    """The name of a run's teacher that this lab does not have; empty where it has it, or the run has none."""
    name = str(knobs.get("teacher", ""))
    asked = choices.needs_teacher(knobs) and name not in ("", SELF) and not row.knob("teacher").choices
    return name if asked and not model_names.is_here(name) else ""


def pinned_reward_model(knobs: Mapping[str, Value]) -> dict[str, Value]:
    """The reward model with its step, where the rewards come from one. Raises LabError where it is none."""
    if not choices.needs_reward_model(knobs):
        return {}
    if not model_names.members(str(knobs["reward_model"])):
        raise LabError(f"The reward source `{knobs['reward_source']}` needs a reward model: set "
                       "`reward_model` to a run of the algorithm reward_model, or to the folder of a Hugging Face "
                       "model with one score.")
    pinned = model_names.pinned_reward_models(str(knobs["reward_model"]))
    if choices.REWARD[str(knobs["reward_source"])].ensemble and "," not in pinned:
        raise LabError(f"The reward source `{knobs['reward_source']}` compares several reward models, and {pinned} is "
                       "one: name more of them in `reward_model` with commas between, or set "
                       "`reward_source=reward_model`.")
    return {"reward_model": pinned}
