r"""The equation of a mix, put together from the LaTeX of its choices, in the letters of the named rows.

    L = agg[ −m_t S(ρ_t, Â) + β·KL − c_H H ]        and, from preferences,        L = loss(Δ) + w₂ loss₂(Δ)
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from labcore.catalog import choices
from labcore.catalog.knob import Value
from labcore.catalog.switched import masked

_JOIN = r",\quad "
_SHORT = 120  # signs of LaTeX that fit beside each other
_RATIOS = {"none": "1", "token": r"\rho_t", "sequence_sum": "s_i", "sequence_mean": "s_i",
           "sequence_mean_token": "s_{i,t}"}
_TOTAL = {False: "R", True: "R'"}
_ESTIMATES = {"k1": "k_1", "k2": "k_2", "k3": "k_3", "ratio_k3": "k_3"}
_LETTERS = {  # of a surrogate, explained behind it
    "soft_gate": r"\tau = \tau_{+}\ \text{if}\ \hat A > 0\ \text{else}\ \tau_{-}",
    "gamma_weight": r"(k,\lambda) = (k_{+},\lambda_{+})\ \text{if}\ \hat A \ge 0\ \text{else}\ (k_{-},\lambda_{-})"}
_MASKS = {"top_entropy_share": r"1[H_t\ \text{among the highest}]",
          "off_policy_threshold": r"1[\text{near}\ \pi_{old}]",
          "importance_cap": r"\min\big(\tfrac{\pi_{old}}{\pi_{sampler}}, C\big)"}
_ENDED = r"y_{i,T_i} = \text{end}"
_KEPT = {"informative": r"\max_g R > \min_g R", "best_of_group": r"y_i = \arg\max_g ", "not_truncated": _ENDED}
_CRITIC = (r"L^V = \frac1{2\sum_i T_i}\sum_{i,t}\max\big((V_t-\hat R_t)^2,\ (\operatorname{clip}(V_t, "
           r"V^{old}_t\pm\varepsilon_V)-\hat R_t)^2\big)")
_CHOSEN, _REJECTED = (rf"\log\tfrac{{\pi_\theta({side})}}{{\pi_{{ref}}({side})}}" for side in ("y_w", "y_l"))
_SIDES = {  # letters of preference losses: how they are found, and what they stand for
    r"\\Delta(?!\^)": r"\Delta = c-r",
    r"\\ell_[wl]": r"\ell_w = \log\pi_\theta(y_w),\quad \ell_l = \log\pi_\theta(y_l)",
    "q_w": r"q_w = \sigma(\beta\Delta) = 1-q_l,\quad \Delta = c-r",
    r"\(1-w\)": r"w = \sigma(\beta\Delta/\tau_w)",
    r"\bz\b": r"z = \max(0, \widehat{KL})",
    "odds": r"odds = \tfrac p{1-p},\quad p = \pi_\theta(y)^{1/T}",
    r"\\Delta\^": r"\Delta^\pi = \log\tfrac{\pi_\theta(y_w)}{\pi_\theta(y_l)},\quad \Delta^{ref} = "
                  r"\log\tfrac{\pi_{ref}(y_w)}{\pi_{ref}(y_l)}"}

# The tokens by which a side is longer than the other weigh less.
_TAIL = (r"\log\pi(y) = \textstyle\sum_{t\le m}\log\pi(y_t) + \alpha_{LD}\sum_{t>m}\log\pi(y_t),\quad "
         r"m = \min(T_w, T_l)")
_EVERY_TOKEN = {r"\\bar T_w": "SFT", r"\bz\b": "KTO"}  # letters of the terms that are not weighed down
_LOG_RATIO = r"(?<![a-z\\])[cr](?![a-z])"  # c or r as a letter of its own


def equation(loop: str, values: Mapping[str, Value]) -> str:
    """The LaTeX of a mix of the loop "online" or "preference" with these knobs."""
    lines = _online(values) if loop == "online" else _preference(values)
    return lines[0] if len(lines) == 1 else r"\begin{gathered}" + r"\\ ".join(lines) + r"\end{gathered}"


# ---- online --------------------------------------------------------------------------------------------------------


def _online(values: Mapping[str, Value]) -> list[str]:
    aggregation = choices.AGGREGATION[str(values["aggregation"])].latex
    aggregation = aggregation.replace(r"\tfrac", r"\frac").replace(r"\sum_i\sum_t", r"\sum_{i,t}")
    surrogate, *letters = _surrogate(values)
    kl = rf" + \beta\,{_estimate(values)}" if values["kl_placement"] == "loss" else ""
    mask = r"m_t\," if masked(values) else ""
    loss = rf"L = {aggregation}\Big[-{mask}{surrogate}{kl} - c_H H_t\Big]"
    advantage = choices.ADVANTAGE[str(values["advantage"])]
    means, whence = _JOIN.join([*_advantage(values), *letters]), _JOIN.join([*_reward(values), *_taken(values)])
    below = [_JOIN.join([means, whence])] if len(means + whence) < _SHORT else [means, whence]
    return [loss, *below, *([_CRITIC] if advantage.critic else [])]


def _surrogate(values: Mapping[str, Value]) -> list[str]:
    """The surrogate of a token, then what its letters stand for."""
    choice, ratio = choices.SURROGATE[str(values["surrogate"])], choices.ratio_of(values)
    letter = "w_i" if choice.own_ratio else _RATIOS[ratio.key]
    text, comma, definition = choice.latex.partition(r",\ \rho'_t")
    text = re.sub(r"\\rho(?![A-Za-z_'])", lambda _: letter, text)
    text = text.replace(r"\hat A", _hat(values)).replace(r"\log\pi_\theta", r"\log\pi_\theta(y_{i,t})")
    letters = [rf"\rho'_t{definition}"] if comma else []
    if choice.needs_ratio and ratio.level == "sequence":
        letters.append(f"{letter} = {ratio.latex}")
    if choice.own_ratio and "s_" in _estimate(values):  # the KL's ratio is another one
        letters.append(f"{_RATIOS[str(values['ratio'])]} = {choices.RATIO[str(values['ratio'])].latex}")
    return [text, *letters, *([_LETTERS[choice.key]] if choice.key in _LETTERS else [])]


def _estimate(values: Mapping[str, Value]) -> str:
    """The KL estimate in the loss."""
    name = str(values["kl_estimator"])
    ratio = _RATIOS[str(values["ratio"])] if name == "ratio_k3" and values["ratio"] != "none" else ""
    return ratio + _ESTIMATES[name]


def _of_sequences(values: Mapping[str, Value]) -> bool:
    return choices.ADVANTAGE[str(values["advantage"])].level == "sequence"


def _hat(values: Mapping[str, Value]) -> str:
    return r"\hat A_i" if _of_sequences(values) else r"\hat A_t"


def _changed(values: Mapping[str, Value]) -> bool:
    """Whether completions are compared by something else than their reward."""
    return values["shaping"] != "none" or (values["kl_placement"] == "reward" and _of_sequences(values))


def _advantage(values: Mapping[str, Value]) -> list[str]:
    """What the advantage is, once normalised."""
    text = choices.ADVANTAGE[str(values["advantage"])].latex
    if _changed(values) and _of_sequences(values):
        text = re.sub(r"R(?![A-Za-z'])(?!_\{greedy)", "R'", text)
    normalisation = str(values.get("normalisation", "none"))
    if normalisation != "none" and _of_sequences(values):
        by = choices.NORMALISATION[normalisation].latex.replace(r"\hat A", "A_i")
        return [rf"{_hat(values)} = {by}", f"A_i = {text}"]
    if values.get("whiten_advantages") and not _of_sequences(values):
        text = rf"\operatorname{{whiten}}\big({text}\big)"
    return [f"{_hat(values)} = {text}"]


def _reward(values: Mapping[str, Value]) -> list[str]:
    """What is rewarded, where that is not the verifier's reward alone."""
    source, shaping = str(values["reward_source"]), choices.SHAPING[str(values["shaping"])]
    found = [f"R = {choices.REWARD[source].latex}"] if source != "verifier" else []
    in_reward, estimate = values["kl_placement"] == "reward", _ESTIMATES[str(values["kl_estimator"])]
    if _changed(values):
        penalty = rf" - \beta\textstyle\sum_t {estimate}" if in_reward and _of_sequences(values) else ""
        found.append(f"R' = {shaping.latex}{penalty}")
    if not _of_sequences(values):
        penalty = rf"-\beta\,{estimate} + " if in_reward else ""
        name = "r'_t" if values.get("whiten_rewards") else "r_t"
        found += [r"r_t = \bar r' + \tfrac{r'_t-\bar r'}{s_{r'}}"] if name != "r_t" else []
        found.append(rf"{name} = {penalty}{_TOTAL[_changed(values)]}\,1_{{last}}")
    if choices.ADVANTAGE[str(values["advantage"])].critic:
        found.append(r"\delta_t = r_t+\gamma V_{t+1}-V_t")
    return found


def _taken(values: Mapping[str, Value]) -> list[str]:
    """Which completions and tokens count, and how they are numbered."""
    masks = [text for key, text in _MASKS.items() if key in values and masked({key: values[key]})]
    selection = str(values["selection"])
    kept = [_KEPT[selection] + _ranked(values) * (selection == "best_of_group")] if selection in _KEPT else []
    kept += [_ENDED] if values["overlong_filter"] and _ENDED not in kept else []
    compares = any(family[str(values[family.key])].group for family in (choices.ADVANTAGE, choices.SELECTION))
    return [*([rf"m_t = {''.join(masks)}"] if masks else []), *kept,
            r"g = 1\ldots G" if compares else r"i = 1\ldots P\,G"]


def _ranked(values: Mapping[str, Value]) -> str:
    """What the best of a group is the best by: all that it earns."""
    if values["kl_placement"] == "reward" and not _of_sequences(values):
        return r"\textstyle\sum_t " + ("r'_t(y_g)" if values.get("whiten_rewards") else "r_t(y_g)")
    return _TOTAL[_changed(values)] + "(y_g)"


# ---- from preferences ----------------------------------------------------------------------------------------------


def _preference(values: Mapping[str, Value]) -> list[str]:
    first, *second = (choices.PREFERENCE_LOSS[name] for name in choices.losses_of(values))
    text = first.latex + "".join(rf" + w_2\big({each.latex}\big)" for each in second)
    weight = r"\operatorname{sg}(w_{pair})\," if values.get("pair_weighting") else ""
    said = [meaning for letter, meaning in _SIDES.items() if re.search(letter, text)]
    if any(each.reference for each in (first, *second)) and re.search(_LOG_RATIO, " ".join([text, *said])):
        said += _log_ratios(str(values["divergence"]))
    left = rf"L = {weight}\Big[{text}\Big]" if weight or second else f"L = {text}"
    if float(values["ld_alpha"]) < 1 and not all(each.every_token for each in (first, *second)):
        said += [_TAIL, *(rf"\alpha_{{LD}} = 1\ \text{{in the {name} term}}" for letter, name in _EVERY_TOKEN.items()
                          if re.search(letter, text))]
    said = list(dict.fromkeys(said))
    return [left, *([_JOIN.join(said)] if said else [])]


def _log_ratios(divergence: str) -> list[str]:
    """c and r: the log-ratios of the chosen and the rejected side, or what another divergence makes of their ratios."""
    if divergence == "reverse_kl":
        return [f"c = {_CHOSEN}", f"r = {_REJECTED}"]
    text = choices.DIVERGENCE[divergence].latex
    ratio = r"u = \tfrac{\pi_\theta}{\pi_{ref}}"
    return [f"c, r = {text}", ratio]
