r"""Link the letters of an equation to their knobs, metrics and numbers of a token.

Each term that is found in a row's LaTeX gets a \textcolor of its own, by which the browser knows it again: KaTeX
trusts nothing else. The colours are all but the same grey, which can be read on either ground until then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from app.theme import symbol
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.choice import Surrogate
from labcore.catalog.choices import SURROGATE
from labcore.catalog.knob import Knob
from labcore.catalog.panels import PANELS


@dataclass(frozen=True)
class Term:
    """A letter of the equation.

    `written` are its spellings in LaTeX; a letter in it takes its sub- and superscript along. `own` are the metrics
    that measure it, `about` the metrics that it affects or that depend on it. `view` (of `app.training.term_values`) is
    the number of a token that belongs to it; if it `ranges`, that number is the term itself. `knob` is the key of the
    knob that sets it.
    """

    key: str
    label: str
    sign: str
    written: tuple[str, ...]
    own: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    view: str = ""
    ranges: bool = False
    knob: str = ""

    def panel(self, row: Algorithm) -> str:
        """The chart of a row that shows it; empty where none does."""
        return next((panel for metric in (*self.own, *self.about) for panel in row.panels
                     if metric in PANELS[panel].metrics), "")


QUANTITIES = (
    Term("loss", "Loss", "L", ("L",), own=("loss", "policy_loss")),
    Term("critic_loss", "Critic loss", "L^V", ("L^V",), own=("value_loss",)),
    Term("ratio", "Probability ratio of new to old policy", "ρ", (r"\rho", "s_i", "s_{i,t}", "w_i"), view="ratio",
         ranges=True, about=("clip_frac/region", "ratio/max")),
    Term("advantage", "Advantage", "Â", (r"\hat A", "A_t"), view="advantages", ranges=True,
         about=("frac_reward_zero_std", "explained_variance")),
    Term("k3", "KL estimate k3", "k_3", ("k_3",), own=("kl",), view="k3"),
    Term("k1", "KL estimate k1", "k_1", ("k_1", "k_{1,i}"), own=("kl/k1",), about=("kl",), view="k1"),
    Term("step_kl", "KL of old and new policy", "KL", (r"\overline{KL}", "KL"), own=("kl/step",)),
    Term("entropy", "Entropy", "H", ("H", r"\bar H"), own=("entropy", "entropy/action"), view="entropy"),
    Term("logprob", "Log-probability", "log π_θ", (
        r"\log\pi_\theta(y_{i,t})", r"\log\pi_\theta(a_t\mid s_t)", r"\log\pi_\theta(a\mid s)"),
        about=("mean_token_accuracy", "entropy", "entropy/action"), view="logprobs", ranges=True),
    Term("teacher", "Log-ratio of teacher to policy", "log π_T/π_{old}", (
        r"\log\tfrac{\pi_T(y_{i,s})}{\pi_{old}(y_{i,s})}", r"\log\tfrac{\pi_T(y_s)}{\pi_{old}(y_s)}",
        r"\log\frac{\pi_T(y_s)}{\pi_{old}(y_s)}"), own=("teacher/reverse_kl",),
        about=("teacher/agreement",), view="teacher", ranges=True),
    Term("teacher_kl", "KL to the teacher", "KL_t(π_θ‖π_T)", (r"KL_t(\pi_\theta\,\|\,\pi_T)",),
         own=("teacher/reverse_kl",), about=("teacher/agreement",)),
    Term("chosen", "Log-ratio of the chosen answer", "log π_θ/π_{ref}(y_w)", (
        r"\log\tfrac{\pi_\theta(y_w)}{\pi_{ref}(y_w)}",), about=("logps/chosen", "rewards/chosen")),
    Term("rejected", "Log-ratio of the rejected answer", "log π_θ/π_{ref}(y_l)", (
        r"\log\tfrac{\pi_\theta(y_l)}{\pi_{ref}(y_l)}",), about=("logps/rejected", "rewards/rejected")),
    Term("reward", "Reward", "R", ("R", "R'"), own=("reward",), about=("reward_std", "exact_match"),
         view="advantages"),
    Term("group_mean", "Mean reward of a group", r"\bar R", (r"\bar R",), about=("reward",), view="advantages"),
    Term("past_mean", "Mean of all earlier rewards", r"\bar R", (r"\bar R_{past}",), about=("reward",),
         view="advantages"),
    Term("group_std", "Standard deviation of a group's rewards", "s_g", ("s_g",),
         about=("frac_reward_zero_std", "reward_std"), view="advantages"),
    Term("value", "Value, by the critic", "V", ("V", "V(s)"), about=("explained_variance", "value_error", "value_loss"),
         view="values", ranges=True),
    Term("target", "Return, the target of the critic", "R̂", (r"\hat R",), about=("explained_variance",), view="values"),
    Term("action_value", "Action value", "Q", ("Q", "Q(s,a)"), own=("q/mean",), about=("q_error",)),
    Term("td_error", "TD error", "δ", (r"\delta",), own=("td_error",)),
    Term("return", "Return", "G", ("G_t", "G_{t+1}", r"\bar G"), own=("episode_return",)),
    Term("step_score", "Score of a step", "s_k", ("s_{i,k}",), own=("reward/step_score", "eval_step_score")),
    Term("length", "Completion length", "T", ("T_i",), own=("completions/mean_length",)),
    Term("limit", "Length limit", "L_{max}", ("L_{max}",), about=("completions/mean_length",), knob="max_new_tokens"),
)


def _moved_by(surrogate: Surrogate) -> tuple[str, ...]:
    """The metrics that tell of a surrogate's own letters."""
    return ("clip_frac/region",) if surrogate.cut else ("ratio/max", *(metric.key for metric in surrogate.logs))


def _letters(latex: str) -> list[Term]:
    """The letters of the surrogate that `latex` is about: by its knobs, because other equations have δ and τ too."""
    return [Term(f"{member.key}_{place}", letter.label, letter.written, (letter.written,), about=_moved_by(member),
                 view="ratio")
            for member in SURROGATE if all(knob.symbol in latex for knob in member.knobs)
            for place, letter in enumerate(member.letters) if letter.label]


# What a knob acts on: metrics, and the number of a token.
ACTS_ON: Mapping[str, tuple[tuple[str, ...], str]] = MappingProxyType({
    **{knob.key: (_moved_by(member), "ratio") for member in SURROGATE for knob in member.knobs},
    "beta": (("rewards/margins", "kl", "kl/step"), "k3"),
    "clip_low": (("clip_frac/low", "clip_frac/region"), "ratio"),
    "clip_high": (("clip_frac/high", "clip_frac/region"), "ratio"),
    "clip_range": (("clip_frac/region",), "ratio"),
    "entropy_coef": (("entropy", "entropy/action"), "entropy"),
    "entropy_target": (("entropy", "entropy_coefficient"), "entropy"),
    "group_size": (("frac_reward_zero_std",), "advantages"),
    "gamma": (("explained_variance", "value_error"), "advantages"),
    "teacher_discount": (("teacher/reverse_kl",), "advantages"),
    "jsd_beta": (("teacher/forward_kl", "teacher/reverse_kl"), "teacher"),
    "on_policy_share": (("teacher/reverse_kl",), "teacher"),
    "gae_lambda": (("explained_variance", "value_error"), "advantages"),
    "lambda": (("value_error",), ""),
    "value_clip": (("value_loss",), "values"),
    "alpha": (("td_error",), ""),
    "value_alpha": (("value_error",), ""),
    "tolerance": (("value_change",), ""),
    "delta": (("kl/step",), ""),
    "psi": (("gradient_variance/advantage",), ""),
})

ELSEWHERE = ("staleness", "temperature")  # knobs whose letter, in an equation, is another quantity

_ARGUMENT = r"(?:\{(?:[^{}]|\{[^{}]*\})*\}|\\[A-Za-z]+|[^\s{}\\])"
_SCRIPTS = rf"(?:[_^]{_ARGUMENT}|'(?=_))*"
# What is never coloured: words, an argument without braces (\textcolor cannot be one), and the names of commands.
_LEFT_ALONE = (r"\\(?:text|operatorname|begin|end)\{[^}]*\}|[_^](?:\\[A-Za-z]+|[^{\\])|"
               r"\\(?:hat|bar|mathbb)\s*\w|\\t?frac\s*\d(?:\\[A-Za-z]+|\w)?|\\[A-Za-z]+")


def of(row: Algorithm) -> list[Term]:
    """The terms of a row's equation that have a knob or a chart, in the order of their first occurrence."""
    known = _known(row)
    found = dict.fromkeys(name for name, _ in _pieces(row.latex, known) if name)
    return [known[name] for name in found]


def knobs_beside(row: Algorithm) -> list[Knob]:
    """The knobs with a letter that does not occur in the equation, without the settings that few people change."""
    inside = {term.knob for term in of(row)}
    return [knob for knob in row.knobs if knob.symbol and knob.key not in inside and not knob.advanced]


def coloured(row: Algorithm) -> str:
    """The row's LaTeX with each term in its own colour."""
    known = _known(row)
    places = {term.key: place for place, term in enumerate(of(row))}
    return "".join(rf"\textcolor{{{_hex(places[name])}}}{{{text}}}" if name else text
                   for name, text in _pieces(row.latex, known))


def colour(place: int) -> str:
    """The colour of the term at `place` as a browser writes it.

    >>> colour(0)
    'rgb(118, 118, 96)'
    """
    return f"rgb(118, 118, {96 + place})"


def _hex(place: int) -> str:
    return f"#7676{96 + place:02x}"


def _known(row: Algorithm) -> dict[str, Term]:
    """The terms that a row may have. A knob's letter is the knob: of TRPO's δ too, which elsewhere is the TD error."""
    knobs = [_of_knob(knob) for knob in row.knobs if knob.symbol and knob.key not in ELSEWHERE]
    keys = {knob.key for knob in row.knobs}
    taken = {spelling for term in knobs for spelling in term.written}
    others = [term for term in (*_letters(row.latex), *QUANTITIES)
              if not taken & set(term.written) and (term.knob in keys or term.panel(row))]
    return {term.key: term for term in (*knobs, *others)}


def _of_knob(knob: Knob) -> Term:
    about, view = ACTS_ON.get(knob.key, ((), ""))
    return Term(f"knob_{knob.key}", knob.label, knob.symbol, (knob.symbol,), about=about, view=view, knob=knob.key)


def _pieces(latex: str, known: Mapping[str, Term]) -> Iterator[tuple[str, str]]:
    """The LaTeX cut into (key of its term or "", text)."""
    spellings = [(text, term) for term in known.values() for text in term.written]
    owners = [(_pattern(text, term), term.key) for text, term in sorted(spellings, key=lambda each: -len(each[0]))]
    cut = re.compile("|".join((*(f"({pattern})" for pattern, _ in owners), _LEFT_ALONE, ".")), re.DOTALL)
    for found in cut.finditer(latex):
        yield (owners[found.lastindex - 1][1] if found.lastindex else ""), found[0]


def _pattern(text: str, term: Term) -> str:
    """A spelling as a pattern. A knob's letter with a subscript is another letter: α_V is no α."""
    if term.knob:
        return rf"{re.escape(text)}(?![A-Za-z_])(?:\^{_ARGUMENT})?"
    if "_" in text or "(" in text:
        return rf"{re.escape(text)}(?![A-Za-z])"
    return rf"{re.escape(text)}(?![A-Za-z]){_SCRIPTS}"


def html(term: Term) -> str:
    """The term's letter as HTML."""
    return symbol(term.sign)
