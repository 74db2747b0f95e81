"""Every number of one token with the arithmetic that makes it, as lines. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import exp, expm1, log1p
from typing import Any

from app.llm.microscope import credit
from app.llm.microscope.lines import Line, agrees, bracketed, less, plain, times
from app.llm.story_words import percent
from labcore.catalog.choices import SURROGATE, ratio_of
from labcore.catalog.knob import Value

MET, AFTER = "update", "after"  # as the last update met the token, and after all updates of the step
Knobs = Mapping[str, Value]
Token = Mapping[str, Any]  # the numbers of one token by their names


def at(completion: Mapping[str, Any], when: str) -> dict[str, Any]:
    """The completion's numbers at one of the two moments; after the updates where the file has no other."""
    met = completion.get("met") if when == MET else None
    found = {**completion, **(met or {})}
    return found | {"ratio": found.get("own_ratio") or found.get("ratio")}


def has_met(completion: Mapping[str, Any]) -> bool:
    """Whether the file says how the update met the completion."""
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
    """All there is of a token of a completion that the update learnt from. `completion` is that of `at`."""
    one = token(completion, place)
    found = _logprob(one)
    if completion.get("advantages") is None or "advantage" not in knobs:
        return [*found, *_rest(one)]
    return [*found, *_ratio(one, knobs), *credit.lines(group, completion, place, knobs), *_surrogate(one, knobs),
            *_kl(one, knobs), *_loss(one, knobs), *_rest(one)]


def _logprob(one: Token) -> list[Line]:
    """The log-probs under the networks that the run has."""
    now = one["logprobs"]
    named = [("old", "old_logprobs"), ("reference", "ref_logprobs"), ("sampler", "sampler_logprobs")]
    others = [f"{name} {plain(one[key])}" for name, key in named if one.get(key) is not None]
    return [Line("Log-prob", "log π", "", "", plain(now), " · ".join([f"probability {percent(exp(min(now, 0)))}",
                                                                      *others]), ("logprob",))]


def _ratio(one: Token, knobs: Knobs) -> list[Line]:
    kind, apart = ratio_of(knobs).key, one.get("apart", 0.0)
    if kind == "none" or one.get("ratio") is None:
        return []
    new, old = one["logprobs"], one["old_logprobs"]
    ways = {"token": ("exp(log π − log π_old)", f"exp({less(new, old)})", new - old),
            "sequence_sum": ("exp(Σ (log π − log π_old))", f"exp({plain(apart)})", apart)}
    mean = ("exp(1/T Σ (log π − log π_old))", f"exp({plain(apart)} / {one.get('length')})",
            apart / max(1, one.get("length", 1)))
    formula, worked, power = ways.get(kind, mean)
    shown = agrees(exp(min(power, 50.0)), one["ratio"])
    return [Line("Ratio", "ρ", formula if shown else "", worked if shown else "", plain(one["ratio"]),
                 "of the whole completion" if kind.startswith("sequence") else "", ("ratio",), "ratio")]


# ---- the surrogate ---------------------------------------------------------------------------------------------


def _surrogate(one: Token, knobs: Knobs) -> list[Line]:
    """S with its branches, and its gradient."""
    kind, advantage, value = str(knobs["surrogate"]), one["advantages"], one.get("objective")
    branches, formula, worked, found, note = WORKED.get(kind, _unknown)(one, knobs, advantage)
    shown = found is not None and (value is None or agrees(found, value))
    result = found if value is None else value
    return [*(branches if shown else []),
            Line("Surrogate", "S", formula if shown else "", worked if shown else "", plain(result),
                 note if shown else SURROGATE[kind].label, ("ratio", "advantage"), "surrogate"),
            *_gradient(one, knobs)]


def _gradient(one: Token, knobs: Knobs) -> list[Line]:
    """∂S/∂log π: how far the update pushes at the token, and 0 where the clip cuts it off."""
    slope = one.get("slope")
    if slope is None:
        return []
    if one["advantages"] == 0:
        note = "the advantage is 0"
    elif slope == 0:
        stays = knobs.get("kl_placement") == "loss" and knobs.get("beta")
        note = "cut off: the surrogate has no gradient here" + ("; that of the KL stays" if stays else "")
    else:
        note = f"pushes its probability {'up' if slope > 0 else 'down'}"
    return [Line("Gradient", "∂S/∂log π", "", "", plain(slope), note, ("ratio", "advantage"), still=slope == 0)]


Worked = tuple[list[Line], str, str, float | None, str]  # branches, formula, with numbers, what comes out, note


def _clip(one: Token, knobs: Knobs, advantage: float) -> Worked:
    ratio, low, high = one["ratio"], 1 - float(knobs["clip_low"]), 1 + float(knobs["clip_high"])
    kept = min(max(ratio, low), high)
    free, clipped = ratio * advantage, kept * advantage
    cut, inside = bool(one.get("cut")), low <= ratio <= high
    bounds = ("knob_clip_low", "knob_clip_high")
    branches = [
        Line("Unclipped", "ρÂ", "", times(ratio, advantage), plain(free), "" if inside else "active branch"
             if not cut else "", ("ratio", "advantage"), active=not cut and not inside),
        Line("Clipped", "clip(ρ) Â", f"clip(ρ, {low:.4g}, {high:.4g}) Â", times(kept, advantage), plain(clipped),
             "active branch: its gradient is 0" if cut else "", ("ratio", "advantage", *bounds), active=cut, still=cut)]
    note = "ρ is inside the clip range: both branches are the same" if inside else ""
    return branches, "min(unclipped, clipped)", f"min({plain(free)}, {plain(clipped)})", min(free, clipped), note


def _weight(one: Token, knobs: Knobs, advantage: float) -> Worked:
    cap, logprob = float(knobs["ratio_cap"]), one["logprobs"]
    kept = min(one["ratio"], cap)
    note = f"the ratio is capped at {cap:g}; its gradient stays" if one["ratio"] > cap else "the weight has no gradient"
    return [], f"min(ρ, {cap:g}) Â log π", times(kept, advantage, logprob), kept * advantage * logprob, note


def _score(one: Token, knobs: Knobs, advantage: float) -> Worked:
    return [], "Â log π", times(advantage, one["logprobs"]), advantage * one["logprobs"], "only its gradient matters"


def _gate(one: Token, knobs: Knobs, advantage: float) -> Worked:
    tau, ratio = float(knobs["gate_positive" if advantage > 0 else "gate_negative"]), one["ratio"]
    gate = 1 / (1 + exp(-max(-50.0, min(50.0, tau * (ratio - 1)))))
    return ([], "4/τ σ(τ(ρ − 1)) Â", f"4/{tau:g} × σ({tau:g} × ({less(ratio, 1.0)})) × {bracketed(advantage)}",
            4 / tau * gate * advantage, "")


def _unknown(one: Token, knobs: Knobs, advantage: float) -> Worked:
    return [], "", "", None, ""


WORKED: Mapping[str, Callable[[Token, Knobs, float], Worked]] = {
    "clip": _clip, "detached_weight": _weight, "score_function": _score, "soft_gate": _gate}


# ---- the rest of the loss --------------------------------------------------------------------------------------


def estimates(logprob: float, ref_logprob: float) -> dict[str, float]:
    """The three estimates of the KL to the reference of a token, nats.

    >>> {key: round(value, 4) for key, value in estimates(-1.0, -1.5).items()}
    {'k1': 0.5, 'k2': 0.125, 'k3': 0.1065}
    """
    apart = logprob - ref_logprob
    return {"k1": apart, "k2": apart ** 2 / 2, "k3": expm1(min(-apart, 50.0)) + apart}


def _kl(one: Token, knobs: Knobs) -> list[Line]:
    """k1, k2 and k3 to the reference; the one that the run uses says what becomes of it."""
    if one.get("ref_logprobs") is None:
        return []
    new, ref = one["logprobs"], one["ref_logprobs"]
    found, apart, used = estimates(new, ref), new - ref, str(knobs.get("kl_estimator", ""))
    ways = {"k1": ("log π − log π_ref", less(new, ref)), "k2": ("½ (log π − log π_ref)²", f"½ × {bracketed(apart)}²"),
            "k3": ("π_ref/π − 1 − log(π_ref/π)", f"exp({plain(-apart)}) − 1 − {bracketed(-apart)}")}
    return [Line(f"KL, {key}", f"k{key[1]}", *ways[key], plain(found[key]),
                 _kl_use(key, found[key], knobs) if used.removeprefix("ratio_") == key else "",
                 (key,) if key != "k2" else (), "kl_estimator" if used.removeprefix("ratio_") == key else "")
            for key in ways]


def _kl_use(key: str, value: float, knobs: Knobs) -> str:
    """What the run does with its estimate."""
    beta, where = float(knobs.get("beta", 0.0)), knobs.get("kl_placement", "off")
    if not beta or where == "off":
        return "measured, not in the loss"
    if where == "loss" and knobs.get("kl_estimator") == key:
        return f"in the loss: β × {key} = {plain(beta)} × {plain(value)} = {plain(beta * value)}"
    return f"in the {where}, β = {plain(beta)}"


WEIGHED = {"top_entropy_share": 1, "off_policy_threshold": 0, "importance_cap": 0}  # the values at which they are off


def _loss(one: Token, knobs: Knobs) -> list[Line]:
    """The token's term of the loss, before tokens are aggregated; none where further weights take part in it."""
    value, kind = one.get("objective"), str(knobs.get("kl_estimator", ""))
    weighed = any(knobs.get(key, off) != off for key, off in WEIGHED.items())
    if value is None or weighed or kind == "ratio_k3" or knobs.get("adaptive_kl_target"):
        return []
    beta = float(knobs.get("beta", 0.0)) if knobs.get("kl_placement") == "loss" else 0.0
    bonus = float(knobs.get("entropy_coef", 0.0))
    kl = estimates(one["logprobs"], one["ref_logprobs"])[kind] if beta else 0.0
    formula, worked = "−S", f"−{bracketed(value)}"
    if beta:
        formula, worked = f"{formula} + β KL", f"{worked} + {plain(beta)} × {bracketed(kl)}"
    if bonus:
        formula, worked = f"{formula} − c_H H", f"{worked} − {plain(bonus)} × {plain(one['entropy'])}"
    result = -value + beta * kl - bonus * one.get("entropy", 0.0)
    return [Line("Token's loss", "ℓ", formula, worked, plain(result), "before tokens are aggregated",
                 ("loss", "knob_beta"), "aggregation")]


def _rest(one: Token) -> list[Line]:
    """What stands for itself."""
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


# The SFT losses by their choice: formula, with its numbers, what comes out, note; of a log-prob.
SUPERVISED: Mapping[str, Callable[[float], tuple[str, str, float, str]]] = {
    "nll": lambda logprob: ("−log π", f"−{bracketed(logprob)}", -logprob, ""),
    "dft": lambda logprob: ("−π log π", times(-exp(logprob), logprob), -exp(logprob) * logprob, "π has no gradient")}


def of_example(example: Mapping[str, Any], place: int, knobs: Knobs) -> list[Line]:
    """A token of an answer that SFT learns."""
    one = token(example, place)
    formula, worked, result, note = SUPERVISED[str(knobs.get("sft_loss", "nll"))](one["logprobs"])
    return [*_logprob(one), Line("Token's loss", "ℓ", formula, worked, plain(result), note, ("loss", "logprob"),
                                 "sft_loss"), *_rest(one)]


def of_pair(pair: Mapping[str, Any], knobs: Knobs) -> list[Line]:
    """The margin of a pair, and what the logistic loss makes of it."""
    sides, beta = [pair[side] for side in ("chosen", "rejected")], float(knobs.get("beta", 0.0))
    found, gained = [], []
    for side, name, sign in zip(sides, ("Chosen", "Rejected"), ("c", "r"), strict=True):
        if side.get("ref_logprob") is not None:
            gained.append(side["logprob"] - side["ref_logprob"])
            found.append(Line(name, sign, "log π − log π_ref", less(side["logprob"], side["ref_logprob"]),
                              plain(gained[-1]), "summed over tokens", (name.lower(),)))
        elif side.get("tokens"):
            gained.append(side["logprob"] / len(side["tokens"]))
            found.append(Line(name, sign, "log π / T", f"{plain(side['logprob'])} / {len(side['tokens'])}",
                              plain(gained[-1]), "per token", (name.lower(),)))
    if len(gained) < 2 or not agrees(beta * (gained[0] - gained[1]), pair["margin"]):
        return found
    margin = pair["margin"]
    found.append(Line("Margin", "β(c − r)", "", f"{plain(beta)} × ({less(*gained)})", plain(margin), "", (
        "knob_beta", "chosen", "rejected")))
    if knobs.get("preference_loss") == "sigmoid" and knobs.get("divergence", "reverse_kl") == "reverse_kl":
        odds = 1 / (1 + exp(-max(-500.0, min(500.0, margin))))
        found.append(Line("Loss", "−log σ", "", f"−log σ({plain(margin)})", plain(_softplus(-margin)),
                          f"both sides are pushed with weight 1 − σ = {percent(1 - odds)}", ("loss",),
                          "preference_loss"))
    return found


def _softplus(value: float) -> float:
    """log(1 + e^x) without overflow.

    >>> round(_softplus(0.0), 4), _softplus(800.0)
    (0.6931, 800.0)
    """
    return max(value, 0.0) + log1p(exp(-abs(value)))
