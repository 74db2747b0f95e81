r"""The equation of a mix, put together from the LaTeX of its choices, in the letters of the named rows.

    L = agg[ −m_t S(ρ_t, Â) + β·KL + KL_t − c_H H ]        and, from preferences,        L = loss(Δ) + w₂ loss₂(Δ)

KL_t is the single-step term of a teacher. SFT has a loss of its own for each token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from labcore.catalog import choices
from labcore.catalog.choice import Choice
from labcore.catalog.families.distillation import SELF
from labcore.catalog.families.preferences import SHARED_LETTERS
from labcore.catalog.knob import Value
from labcore.catalog.panels import masked

_JOIN = r",\quad "
_SHORT = 120  # signs of LaTeX that fit beside each other
_TOTAL = {False: "R", True: "R'"}
_SAMPLER = r"\tfrac{\pi_{old}}{\pi_{sampler}}"
_CRITIC = (r"L^V = \frac1{2\sum_i T_i}\sum_{i,t}\max\big((V_t-\hat R_t)^2,\ (\operatorname{clip}(V_t, "
           r"V^{old}_t\pm\varepsilon_V)-\hat R_t)^2\big)")
_CHOSEN, _REJECTED = (rf"\log\tfrac{{\pi_\theta({side})}}{{\pi_{{ref}}({side})}}" for side in ("y_w", "y_l"))

# The tokens by which a side is longer than the other weigh less.
_TAIL = (r"\log\pi(y) = \textstyle\sum_{t\le m}\log\pi(y_t) + \alpha_{LD}\sum_{t>m}\log\pi(y_t),\quad "
         r"m = \min(T_w, T_l)")
_LOG_RATIO = r"(?<![a-z\\])[cr](?![a-z])"  # c or r as a letter of its own


def equation(loop: str, values: Mapping[str, Value]) -> str:
    """The LaTeX of a run of the loop "online", "preference" or "sft" with these knobs."""
    lines = {"online": _online, "preference": _preference, "sft": _sft}[loop](values)
    return lines[0] if len(lines) == 1 else r"\begin{gathered}" + r"\\ ".join(lines) + r"\end{gathered}"


# ---- online --------------------------------------------------------------------------------------------------------


def _online(values: Mapping[str, Value]) -> list[str]:
    aggregation = choices.AGGREGATION[str(values["aggregation"])].latex
    aggregation = aggregation.replace(r"\tfrac", r"\frac").replace(r"\sum_i\sum_t", r"\sum_{i,t}")
    surrogate, *letters = _surrogate(values)
    kl = rf" + \beta\,{_estimate(values)}" if values["kl_placement"] == "loss" else ""
    kl += r" + KL_t(\pi_\theta\,\|\,\pi_T)" if _single_step(values) else ""
    mask = r"m_t\," if _weights(values)[0] else ""
    rest = r"(1-\mu_S)\," if values.get("sft_weight") else ""
    imitated = (r" - \mu_S\,\overline{" + (r"\varphi_t\," if values["sft_focus"] else "") + r"\log\pi_\theta(y^*_t)}"
                if rest else "")
    loss = rf"L = {rest}{aggregation}\Big[-{mask}{surrogate}{kl} - c_H H_t\Big]{imitated}"
    advantage = choices.ADVANTAGE[str(values["advantage"])]
    means = _JOIN.join([*_advantage(values), *_teacher(values), *letters])
    rewards = _JOIN.join([*_reward(values), *_taken(values)])
    below = [_JOIN.join([means, rewards])] if len(means + rewards) < _SHORT else [means, rewards]
    return [loss, *below, *([_CRITIC] if advantage.critic else [])]


def _surrogate(values: Mapping[str, Value]) -> list[str]:
    """The surrogate of a token, then what its letters stand for."""
    choice, ratio = choices.SURROGATE[str(values["surrogate"])], choices.ratio_of(values)
    letter = "w_i" if choice.own_ratio else ratio.letter
    text = re.sub(r"\\rho(?![A-Za-z_'])", lambda _: letter, choice.latex)
    text = text.replace(r"\hat A", _hat(values)).replace(r"\log\pi_\theta", r"\log\pi_\theta(y_{i,t})")
    letters = [f"{letter} = {ratio.latex}"] if choice.needs_ratio and ratio.level == "sequence" else []
    if choice.own_ratio and "s_" in _estimate(values):  # the KL's ratio is another one
        other = choices.RATIO[str(values["ratio"])]
        letters.append(f"{other.letter} = {other.latex}")
    return [text, *letters, *(letter.means for letter in choice.letters if letter.means), *_weights(values)[1]]


def _weights(values: Mapping[str, Value]) -> tuple[list[str], list[str]]:
    """The weights of tokens that are on: those that the surrogate is multiplied by, and those that it absorbs."""
    found = {"top_entropy_share": ("high_entropy", r"1[H_t\ \text{among the highest}]"),
             "off_policy_threshold": ("near_policy", r"1[\text{near}\ \pi_{old}]"),
             "importance_cap": ("sampler_correction", _correction(values))}
    own = choices.SURROGATE[str(values["surrogate"])].absorbs
    on = [named for key, named in found.items() if key in values and masked({key: values[key]})]
    return [text for name, text in on if name not in own], [own[name] + text for name, text in on if name in own]


def _correction(values: Mapping[str, Value]) -> str:
    """The weight for another sampler, within its bounds c and C."""
    level, outside = str(values.get("importance_mode", "token_truncate")).split("_")
    ratio = _SAMPLER if level == "token" else rf"\textstyle\prod_s{_SAMPLER}"
    lower = bool(values.get("importance_floor"))
    if outside == "mask":
        return ratio + r"\,1[" + (r"c \le " if lower else "") + r"\cdot \le C]"
    return (rf"\operatorname{{clip}}\big({ratio}, c, C\big)" if lower else rf"\min\big({ratio}, C\big)")


def _estimate(values: Mapping[str, Value]) -> str:
    """The KL estimate in the loss."""
    estimator, ratio = choices.KL_ESTIMATOR[str(values["kl_estimator"])], choices.RATIO[str(values["ratio"])]
    return (ratio.letter if estimator.by_ratio and ratio.letter != "1" else "") + _signed(estimator)


def _signed(estimator: Choice) -> str:
    """The letter of an estimate; one without a letter is written out."""
    return estimator.sign or rf"\Big({estimator.latex}\Big)"


def _of_sequences(values: Mapping[str, Value]) -> bool:
    return choices.ADVANTAGE[str(values["advantage"])].level == "sequence"


def _hat(values: Mapping[str, Value]) -> str:
    return r"\hat A_i" if _of_sequences(values) else r"\hat A_t"


def _changed(values: Mapping[str, Value]) -> bool:
    """True if completions are compared by something else than their reward."""
    return values["shaping"] != "none" or (values["kl_placement"] == "reward" and _of_sequences(values))


def _advantage(values: Mapping[str, Value]) -> list[str]:
    """The advantage, once normalised."""
    text = choices.ADVANTAGE[str(values["advantage"])].latex
    if _single_step(values):
        text = text.replace(r"s\ge t", "s>t")
    if _changed(values) and _of_sequences(values):
        text = re.sub(r"R(?![A-Za-z'])(?!_\{greedy)", "R'", text)
    normalisation = str(values.get("normalisation", "none"))
    if normalisation != "none" and _of_sequences(values):
        by = choices.NORMALISATION[normalisation].latex.replace(r"\hat A", "A_i")
        return [rf"{_hat(values)} = {by}", f"A_i = {text}"]
    if values.get("whiten_advantages") and not _of_sequences(values):
        text = rf"\operatorname{{whiten}}\big({text}\big)"
    return [f"{_hat(values)} = {text}"]


def _single_step(values: Mapping[str, Value]) -> bool:
    return bool(values.get("single_step")) and choices.ADVANTAGE[str(values["advantage"])].teacher


def _teacher(values: Mapping[str, Value]) -> list[str]:
    """The teacher, if it is the run's reference model or reads a context."""
    context, own = str(values.get("teacher_context", "nothing")), values.get("teacher") == SELF
    if not choices.ADVANTAGE[str(values["advantage"])].teacher or not (own or context != "nothing"):
        return []
    model = r"\pi_{ref}" if own else r"\pi_{teacher}"
    return [rf"\pi_T = {model}(\cdot\mid {choices.TEACHER_CONTEXT[context].latex}, y_{{<t}})"]


def _reward(values: Mapping[str, Value]) -> list[str]:
    """The reward, unless it is the verifier's alone; empty if a teacher gives the advantages."""
    if choices.ADVANTAGE[str(values["advantage"])].teacher:
        return []
    source, shaping = choices.REWARD[str(values["reward_source"])], choices.SHAPING[str(values["shaping"])]
    found = [f"R = {source.latex}"] if source.latex != "r" else []
    found += [f"r_k = {choices.STEP_REWARD[str(values['step_reward'])].latex}"] if source.process else []
    in_reward = values["kl_placement"] == "reward"
    estimate = _signed(choices.KL_ESTIMATOR[str(values["kl_estimator"])])
    if _changed(values):
        penalty = rf" - \beta\textstyle\sum_t {estimate}" if in_reward and _of_sequences(values) else ""
        found.append(f"R' = {shaping.latex}{penalty}")
    if not _of_sequences(values):
        penalty = rf"-\beta\,{estimate} + " if in_reward else ""
        name = "r'_t" if values.get("whiten_rewards") else "r_t"
        found += [r"r_t = \bar r' + \tfrac{r'_t-\bar r'}{s_{r'}}"] if name != "r_t" else []
        total = _TOTAL[_changed(values)]
        found.append(rf"{name} = {penalty}" + (
            rf"\textstyle\sum_k r_k\,1[end_k = t] + ({total}-\sum_k r_k)\,1_{{last}}" if source.process else
            rf"{total}\,1_{{last}}"))
    if choices.ADVANTAGE[str(values["advantage"])].critic:
        found.append(r"\delta_t = r_t+\gamma V_{t+1}-V_t")
    return found


def _taken(values: Mapping[str, Value]) -> list[str]:
    """The completions and tokens that count, and their numbers."""
    masks = _weights(values)[0]
    kept = [choices.SELECTION[str(values["selection"])].kept.replace("R(y_g)", _ranked(values))]
    kept += [choices.SELECTION["not_truncated"].kept] if values["overlong_filter"] else []
    compares = any(family[str(values[family.key])].group for family in (
        choices.ADVANTAGE, choices.SELECTION, choices.SURROGATE))
    return [*([rf"m_t = {''.join(masks)}"] if masks else []), *dict.fromkeys(filter(None, kept)),
            r"g = 1\ldots G" if compares else r"i = 1\ldots P\,G"]


def _ranked(values: Mapping[str, Value]) -> str:
    """The score by which the best of a group is chosen: all that it earns."""
    if values["kl_placement"] == "reward" and not _of_sequences(values):
        return r"\textstyle\sum_t " + ("r'_t(y_g)" if values.get("whiten_rewards") else "r_t(y_g)")
    return _TOTAL[_changed(values)] + "(y_g)"


# ---- SFT -----------------------------------------------------------------------------------------------------------


def _sft(values: Mapping[str, Value]) -> list[str]:
    loss = choices.SFT_LOSS[str(values["sft_loss"])].latex.replace(r"\log\pi_\theta", r"\log\pi_\theta(y_{i,t})")
    mixture = [r"m = \beta_J\pi_T+(1-\beta_J)\pi_\theta"] if r"\,m)" in loss else []
    share, taught = float(values.get("on_policy_share", 0.0)), values.get("answers") == "teacher"
    given = [r"y_i\sim\pi_T"] if taught and share < 1 else []
    own = [r"y_i\sim\pi_\theta\ \text{with probability}\ \lambda_{GKD}"] if share else []
    said = _JOIN.join([*mixture, *given, *own])
    return [rf"L = \frac1{{\sum_i T_i}}\sum_{{i,t}}\Big[{loss}\Big]", *([said] if said else [])]


# ---- from preferences ----------------------------------------------------------------------------------------------


def _preference(values: Mapping[str, Value]) -> list[str]:
    losses = [choices.PREFERENCE_LOSS[name] for name in choices.losses_of(values)]
    weighted = choices.weighted_losses(values)
    first, *second = (each.latex if place == 1 and weighted[0][1] == 1 else rf"w_{place}\big({each.latex}\big)"
                      for place, each in enumerate(losses, 1))
    text = " + ".join([first, *second])
    weight = r"\operatorname{sg}(w_{pair})\," if values.get("pair_weighting") else ""
    said = [letter.means for letter in SHARED_LETTERS if re.search(letter.written, text)]
    said += [letter.means for each in losses for letter in each.letters if letter.means]
    if any(each.reference for each in losses) and re.search(_LOG_RATIO, " ".join([text, *said])):
        said += _log_ratios(str(values["divergence"]))
    left = rf"L = {weight}\Big[{text}\Big]" if weight or second else f"L = {text}"
    if float(values["ld_alpha"]) < 1 and not all(each.every_token for each in losses):
        whole = [each.term for each in losses if each.term]
        said += [_TAIL, *(rf"\alpha_{{LD}} = 1\ \text{{in the {name} term}}" for name in dict.fromkeys(whole))]
    said = list(dict.fromkeys(said))
    return [left, *([_JOIN.join(said)] if said else [])]


def _log_ratios(divergence: str) -> list[str]:
    """c and r: the log-ratios of the chosen and the rejected side, or what another divergence makes of their ratios."""
    if divergence == "reverse_kl":
        return [f"c = {_CHOSEN}", f"r = {_REJECTED}"]
    text = choices.DIVERGENCE[divergence].latex
    ratio = r"u = \tfrac{\pi_\theta}{\pi_{ref}}"
    return [f"c, r = {text}", ratio]
