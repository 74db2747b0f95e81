"""Every number of one token with the arithmetic that makes it, as lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, prod
from typing import Any

from app.llm.microscope import credit, words
from app.llm.microscope.lines import Line, agrees, bracketed, less, plain
from app.tokens import signs
from labcore.catalog import choices
from labcore.catalog.amounts import percent
from labcore.catalog.choice import KL
from labcore.catalog.knob import Value
from labcore.catalog.worked import Numbers

MET, AFTER = "update", "after"  # as the last update met the token, and after all updates of the step
Knobs = Mapping[str, Value]
Token = Mapping[str, Any]  # the numbers of one token by their names
_TOKEN_RATIO = choices.RATIO["token"]

LONGEST_ANSWER = 60  # characters


def at(completion: Mapping[str, Any], when: str) -> dict[str, Any]:
    """The completion's numbers at one of the two moments; after the updates where the file has no other. `rho` is the
    ratio of the surrogate: that of the token, or of the whole sequence. `kl` is k3 at that moment; the token's ratio is
    computed if the file has none."""
    met = completion.get("met") if when == MET else None
    found = {**completion, **(met or {})}
    if (new := found.get("logprobs")) and (ref := found.get("ref_logprobs")):
        found["kl"] = [estimate(choices.KL_ESTIMATOR["k3"], {"logprobs": a, "ref_logprobs": b}, {})
                       for a, b in zip(new, ref, strict=True)]
    if new and (old := found.get("old_logprobs")) and "ratio" not in found:
        found["ratio"] = [words.number(_TOKEN_RATIO, words.numbers({}, logprobs=a, old_logprobs=b))
                          for a, b in zip(new, old, strict=True)]
    return found | {"rho": found.get("own_ratio") or found.get("ratio")}


def has_met(completion: Mapping[str, Any]) -> bool:
    """True if the file records the effect of the update on the completion."""
    return bool(completion.get("met"))


def token(completion: Mapping[str, Any], place: int) -> dict[str, Any]:
    """The numbers of the token at a place, and the sums over its completion that a ratio of sequences needs."""
    found = {name: values[place] for name, values in completion.items()
             if isinstance(values, list) and place < len(values)}
    if (completion.get("old_logprobs") is not None and completion.get("logprobs")):
        apart = [new - old for new, old in zip(completion["logprobs"], completion["old_logprobs"], strict=True)]
        found |= {"apart": sum(apart), "length": len(apart)}
    return found


def lines(group: Mapping[str, Any], completion: Mapping[str, Any], place: int, knobs: Knobs) -> list[Line]:
    """All lines of a token of a completion that the update learnt from. `completion` is that of `at`."""
    one = token(completion, place)
    found = [*_logprob(one), *_step(completion, place, knobs)]
    if "advantage" not in knobs:  # no credit assignment, or an unknown one
        return [*found, *_token_ratio(one), *_kl(one, {}), *_rest(one)]
    if completion.get("advantages") is None:
        return [*found, *_rest(one)]
    return [*found, *_ratio(one, knobs), *credit.lines(group, completion, place, knobs), *_surrogate(one, knobs),
            *_kl(one, knobs), *_loss(one, knobs), *_rest(one)]


def _logprob(one: Token) -> list[Line]:
    """The log-probs under the networks of the run; empty if none were recorded."""
    if (now := one.get("logprobs")) is None:
        return []
    named = [("old", "old_logprobs"), ("reference", "ref_logprobs"), ("sampler", "sampler_logprobs")]
    others = [f"{name} {plain(one[key])}" for name, key in named if one.get(key) is not None]
    return [Line("Log-prob", "log π", "", "", plain(now), " · ".join([f"probability {percent(exp(min(now, 0)))}",
                                                                      *others]), ("logprob",)), *_teacher(one)]


def _teacher(one: Token) -> list[Line]:
    """The teacher's log-prob of the token, and the tokens that the teacher finds likeliest there."""
    if (theirs := one.get("teacher_logprobs")) is None:
        return []
    likely = ", ".join(f"“{signs(text)}” {percent(p)}" for text, p in one.get("teacher_top") or [])
    apart = theirs - one["logprobs"]
    return [Line("Teacher", "log π_T", "", "", plain(theirs), f"it would write {likely}", ("teacher",)),
            Line("To the teacher", "log π_T/π", "log π_T − log π", less(theirs, one["logprobs"]),
                 plain(apart), "the teacher finds it likelier" if apart > 0 else "the teacher finds it less likely")]


def _ratio(one: Token, knobs: Knobs) -> list[Line]:
    chosen = choices.ratio_of(knobs)
    if chosen.sign == "1" or one.get("rho") is None:
        return []
    of = words.numbers(knobs, logprobs=one["logprobs"], old_logprobs=one["old_logprobs"], apart=one.get("apart"),
                       length=one.get("length"))
    return words.lines(chosen, of, one["rho"], Line("Ratio", "ρ", terms=("ratio",), source="ratio"))


def _token_ratio(one: Token) -> list[Line]:
    """π/π_old of the token, whatever the ratio of the algorithm."""
    if one.get("logprobs") is None or one.get("old_logprobs") is None:
        return []
    of = words.numbers({}, logprobs=one["logprobs"], old_logprobs=one["old_logprobs"])
    return words.lines(_TOKEN_RATIO, of, one.get("ratio"), Line("Ratio", "ρ", terms=("ratio",)))


# ---- the surrogate ---------------------------------------------------------------------------------------------


def _surrogate(one: Token, knobs: Knobs) -> list[Line]:
    """S with its branches, and its gradient."""
    of = words.numbers(knobs, logprobs=one["logprobs"], old_logprobs=one.get("old_logprobs"), ratio=one.get("rho"),
                       advantage=one["advantages"], cut=float(bool(one.get("cut"))))
    line = Line("Surrogate", "S", terms=("ratio", "advantage"), source="surrogate")
    return [*words.lines(choices.SURROGATE[str(knobs["surrogate"])], of, one.get("objective"), line),
            *_gradient(one, knobs)]


def _gradient(one: Token, knobs: Knobs) -> list[Line]:
    """∂S/∂log π: the push of the update on the token; 0 if the ratio is clipped."""
    slope = one.get("slope")
    if slope is None:
        return []
    if one["advantages"] == 0:
        own = "; the token's own grade is in the KL to the teacher" if knobs.get("single_step") else ""
        note = f"the advantage is 0{own}"
    elif slope == 0:
        stays = knobs.get("kl_placement") == "loss" and knobs.get("beta")
        note = "clipped: the surrogate has no gradient here" + ("; the gradient of the KL remains" if stays else "")
    else:
        note = f"pushes its probability {'up' if slope > 0 else 'down'}"
    return [Line("Gradient", "∂S/∂log π", "", "", plain(slope), note, ("ratio", "advantage"), still=slope == 0)]


# ---- the rest of the loss --------------------------------------------------------------------------------------


def _of_kl(one: Token, knobs: Knobs) -> Numbers:
    """The numbers that the arithmetic of an estimate of the KL may ask for; the ratio only where the surrogate's is the
    chosen one, which weighs the KL."""
    shared = "ratio" in knobs and choices.ratio_of(knobs).key == knobs["ratio"]
    return words.numbers(knobs, logprobs=one["logprobs"], ref_logprobs=one["ref_logprobs"],
                         ratio=one.get("rho") if shared else None)


def estimate(chosen: KL, one: Token, knobs: Knobs) -> float | None:
    """An estimate of the KL to the reference of a token, nats: by its arithmetic, else that of the run as it was
    recorded."""
    if one.get("ref_logprobs") is None:
        return None
    found = words.number(chosen, _of_kl(one, knobs))
    return one.get("kl_estimate") if found is None and chosen in choices.chosen(choices.KL_ESTIMATOR, knobs) else found


def _kl(one: Token, knobs: Knobs) -> list[Line]:
    """The estimates to the reference that declare their arithmetic, and the one that the run uses with what becomes of
    it."""
    if one.get("ref_logprobs") is None or one.get("logprobs") is None:
        return []
    chosen = [each.key for each in choices.chosen(choices.KL_ESTIMATOR, knobs)]
    found = []
    for each in choices.KL_ESTIMATOR:
        value, used = estimate(each, one, knobs), each.key in chosen
        if value is not None and (used or each.worked):
            line = Line(f"KL, {each.key}", each.sign.replace("_", ""), terms=(each.key,),
                        note=_kl_use(each, value, knobs) if used else "", source="kl_estimator" if used else "")
            found += words.lines(each, _of_kl(one, knobs), value, line)
    return found


def _kl_use(chosen: KL, value: float, knobs: Knobs) -> str:
    """Say where the KL estimate enters: in the loss, in the reward, or nowhere."""
    beta, where = float(knobs.get("beta", 0.0)), knobs.get("kl_placement", "off")
    if not beta or where == "off":
        return "measured, not in the loss"
    if where == "loss":
        return f"in the loss: β × {chosen.key} = {plain(beta)} × {plain(value)} = {plain(beta * value)}"
    return f"in the {where}, β = {plain(beta)}"


ADDED = ("adaptive_kl_target", "entropy_target", "single_step")  # they add terms that the stored samples lack
WEIGHED = {"top_entropy_share": 1, "off_policy_threshold": 0, "importance_cap": 0}  # the values at which they are off


def _loss(one: Token, knobs: Knobs) -> list[Line]:
    """The token's term of the loss before aggregation; no line if the stored samples lack a part of it."""
    value, weight = one.get("objective"), one.get("weight")
    weighed = weight is None and any(knobs.get(key, off) != off for key, off in WEIGHED.items())
    added = any(knobs.get(key) for key in ADDED)
    if value is None or weighed or added:
        return []
    beta = float(knobs.get("beta", 0.0)) if knobs.get("kl_placement") == "loss" else 0.0
    bonus = float(knobs.get("entropy_coef", 0.0))
    kl = estimate(choices.KL_ESTIMATOR[str(knobs["kl_estimator"])], one, knobs) if beta else 0.0
    if kl is None:
        return []
    formula, worked = ("−S", f"−{bracketed(value)}") if weight is None else (
        "−w S", f"−{plain(weight)} × {bracketed(value)}")
    if beta:
        formula, worked = f"{formula} + β KL", f"{worked} + {plain(beta)} × {bracketed(kl)}"
    if bonus:
        formula, worked = f"{formula} − c_H H", f"{worked} − {plain(bonus)} × {plain(one['entropy'])}"
    result = -value * (1 if weight is None else weight) + beta * kl - bonus * one.get("entropy", 0.0)
    return [Line("Token's loss", "ℓ", formula, worked, plain(result), "before tokens are aggregated",
                 ("loss", "knob_beta"), "aggregation")]


def _step(completion: Mapping[str, Any], place: int, knobs: Knobs) -> list[Line]:
    """The score of the step that ends at the token with the verifier's verdict, and the reward of the step."""
    scores = completion.get("step_scores") or []
    if place >= len(scores) or scores[place] is None:
        return []
    gold = (completion.get("step_gold") or scores)[place]
    said = {0.0: "the verifier says: wrong", 1.0: "the verifier says: right"}.get(gold, "")
    line = Line("Reward of the step", "r_k", terms=("reward",), source="step_reward")
    rewards = [found for chosen in choices.chosen(choices.STEP_REWARD, knobs)
               for found in words.lines(chosen, _of_steps(scores, place, knobs), None, line)]
    return [Line("Score of the step", "s_k", "", "", plain(scores[place]), said, ("reward",)), *rewards]


def _of_steps(scores: list[float | None], place: int, knobs: Knobs) -> Numbers:
    """The numbers that formulas of a step's reward use; `weights` is None if they are too large to show."""
    known = [score for score in scores if score is not None]
    before = [score for score in scores[:place] if score is not None]
    powers = [(1 - 2 * score) / float(knobs.get("min_temperature", 1.0)) for score in known]
    weights = sum(map(exp, powers)) if max(powers) <= words.LARGEST else None
    return words.numbers(knobs, score=scores[place], previous=before[-1] if before else 0.0, weights=weights,
                         lowest=min(known), product=prod(known), at_end=float(len(before) + 1 == len(known)))


def _rest(one: Token) -> list[Line]:
    """The numbers without arithmetic."""
    found = []
    if one.get("entropy") is not None:
        found.append(Line("Entropy", "H", "", "", f"{plain(one['entropy'])} nats", "of the next-token distribution",
                          ("entropy",)))
    if one.get("share") is not None:
        found.append(Line("Gradient share", "‖∂L/∂z‖", "", "", percent(one["share"]), "of the sum over the update's "
                          "tokens, z: the token's logits"))
    return found


# ---- given texts -----------------------------------------------------------------------------------------------


def of_side(side: Mapping[str, Any], place: int) -> list[Line]:
    """A token of a chosen or rejected completion."""
    one = token(side, place)
    found = _logprob(one)
    if one.get("ref_logprobs") is not None:
        new, ref = one["logprobs"], one["ref_logprobs"]
        found.append(Line("Log-ratio", "log π/π_ref", "log π − log π_ref", less(new, ref), plain(new - ref),
                          "the completion's is the sum over its tokens", ("chosen", "rejected")))
    return [*found, *_rest(one)]


def of_example(example: Mapping[str, Any], place: int, knobs: Knobs) -> list[Line]:
    """A token of an answer that SFT learns."""
    one = token(example, place)
    line = Line("Token's loss", "ℓ", terms=("loss", "logprob"), source="sft_loss")
    chosen = choices.SFT_LOSS[str(knobs.get("sft_loss", choices.SFT_LOSS.names[0]))]
    return [*_logprob(one), *words.lines(chosen, words.numbers(knobs, logprobs=one["logprobs"]), None, line),
            *_rest(one)]


def of_pair(pair: Mapping[str, Any], knobs: Knobs) -> list[Line]:
    """The margin of a pair, and the logistic loss of it."""
    sides, beta = [pair[side] for side in ("chosen", "rejected")], float(knobs.get("beta", 0.0))
    found, gained = [], []
    for side, name, sign in zip(sides, ("Chosen", "Rejected"), ("c", "r"), strict=True):
        if None not in (side.get("logprob"), side.get("ref_logprob")):
            gained.append(side["logprob"] - side["ref_logprob"])
            found.append(Line(name, sign, "log π − log π_ref", less(side["logprob"], side["ref_logprob"]),
                              plain(gained[-1]), "summed over tokens", (name.lower(),)))
        elif side.get("tokens") and side.get("logprob") is not None:
            gained.append(side["logprob"] / len(side["tokens"]))
            found.append(Line(name, sign, "log π / T", f"{plain(side['logprob'])} / {len(side['tokens'])}",
                              plain(gained[-1]), "per token", (name.lower(),)))
    if "own_answer" in pair:
        found.append(Line("Task's answer", "log π(y_a)", "", "", f"{plain(pair['own_answer']['logprob'])} nats",
                          f"{pair['own_answer']['text'][:LONGEST_ANSWER]}: learnt beside both sides", ("logprob",)))
    margin = pair["margin"]
    if len(gained) < 2 or margin is None or "beta" not in knobs or not agrees(beta * (gained[0] - gained[1]), margin):
        return found
    found.append(Line("Margin", "β(c − r)", "", f"{plain(beta)} × ({less(*gained)})", plain(margin), "", (
        "knob_beta", "chosen", "rejected")))
    usual = choices.DIVERGENCE.names[0]  # with another divergence the loss is not a function of this margin
    if knobs.get("divergence", usual) == usual:
        loss, *added = choices.chosen(choices.PREFERENCE_LOSS, knobs)
        notes = ["before its weight, without the losses that are added"] * bool(added)
        notes += ["of this order; the loss of a tie is the mean of both orders"] * bool(pair.get("tie"))
        line = Line("First loss" if added else "Loss", "ℓ", terms=("loss",), source="preference_loss",
                    note="; ".join(notes))
        found += words.lines(loss, words.numbers(knobs, margin=margin), None, line) if loss.worked else []
    return found
