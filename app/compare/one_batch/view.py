"""One batch, several algorithms: the gradient and the step of each on the same completions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import streamlit as st

from app import jobs, link, naming, number_boxes, theme
from app.chat_text import in_one_line, shortened
from app.compare.answers import language_runs
from app.compare.one_batch import charts
from app.compare.one_batch.batch import (
    BOUNDS,
    LOOKED,
    MOST,
    ONLINE,
    OTHERS,
    UPDATES,
    USUAL,
    Batch,
    of,
    read,
    to_compare,
)
from app.components.figure_chart import figure_chart
from app.link import Param
from app.on_request import large, requested
from app.tokens import literal
from app.widget_state import WidgetState, widget_state
from labcore.catalog.amounts import percent
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.errors import listed
from labcore.runs.models import offered, spec_of
from labcore.runs.spec.model_names import BASE, Model, parse
from labcore.runs.store.rows import RunRow
from labcore.runs.titles import title as title_of

BATCH = Param("batch", "")
DOING = "Sampling the batch; each algorithm computes its gradient and a step"
CSS = """
<style>
.st-key-one_batch_stale{opacity:.45}
.rl-push{border-collapse:separate;border-spacing:2px;font-size:14px;font-variant-numeric:tabular-nums}
.rl-push th,.rl-push td{padding:3px 7px;text-align:center;border:0;border-radius:4px;min-width:44px}
.rl-push th{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-weight:600}
.rl-push td:first-child,.rl-push th:first-child{text-align:left;padding-left:0;white-space:nowrap}
.rl-seen{margin:.2rem 0 0;padding-left:1.1rem;font-size:15px;line-height:1.5}.rl-seen li{margin:0 0 .45rem}
</style>"""


def panel(run_ids: Sequence[str], polled: bool = False, hues: Mapping[str, int] = MappingProxyType({})) -> None:
    """The whole view of the runs that are compared; one of them gives the batch.

    `polled` as in `answers.panel`; `hues` are the numbers of the colours that algorithms have on the page around.
    """
    language = language_runs(run_ids)
    runs = [run for run in language if run.spec.task_row.verifiable]
    if not runs:
        st.info("The algorithms of this view learn from rewards, and preference files have none. Choose a run on a "
                "task with a verifier." if language else
                "This view samples a batch from a language model. Choose a run of the LLM lab that has a checkpoint.",
                icon=":material/info:")
        return
    pinned = (each.name for run in runs for each in (Model(run.id).pinned, *reversed(offered(run.id))))
    models = list(dict.fromkeys(pinned))
    compared = to_compare([run.spec.algorithm for run in runs])
    asked, faults = read(link.get(BATCH), models)
    for fault in faults:
        st.warning(literal(fault.sentence), icon=":material/error:")
    batch = of(link.get(BATCH), models, compared)
    above = st.container()
    choice = tuple(run.id for run in runs), asked.spec()
    wanted = not any(large(run.spec) for run in runs) or requested("one_batch", choice, batch.spec(), f"{DOING}.")
    found, fresh = jobs.result(batch.spec(), DOING, "one_batch", choice, parse(batch.model).run,
                               polled) if wanted else (None, False)
    batch = replace(batch, model=jobs.asked_for("one_batch", batch.spec())["model"])

    def to(**changes: Any) -> None:
        now = of(link.get(BATCH), [batch.model, *models])  # another control may have been moved since this was drawn
        same = set(changes) <= set(LOOKED)  # another batch has other ones
        looked: dict[str, Any] = {} if same else dict.fromkeys(LOOKED, USUAL)
        link.put(BATCH, replace(now, **looked, **changes).to_text())

    with above:
        _controls(batch, runs, to)
        _algorithms(batch, compared, to)
    if found is None:
        return
    st.html(CSS)
    with st.container(key="one_batch" if fresh else "one_batch_stale"):
        _shown(found, batch, to, hues)


def _shown(found: dict[str, Any], batch: Batch, to: Callable[..., None], hues: Mapping[str, int]) -> None:
    kind = theme.ground()
    st.html(_head(found))
    left, right = st.columns([1.4, 1], gap="large")
    with left:
        figure_chart(charts.cosine_figure(found, kind, hues), "one_batch:cosines",
                     title="Cosines between gradients", caption=batch.model,
                     alt="Cosine between the gradients of each pair of algorithms, and each gradient's norm",
                     least=280 + 46 * len(found["algorithms"]))
        st.caption("Blue: both gradients push the weights the same way; orange: in opposite directions. Gradients and "
                   "norms are those before gradient-norm clipping.")
    right.html(f'<ul class="rl-seen">{"".join(f"<li>{each}</li>" for each in charts.said(found))}</ul>')
    _pushes(found, batch, to)
    _effects(found, batch, kind, hues)


def _model_name(name: str, runs: Sequence[RunRow]) -> str:
    """A model by its run's name: "GRPO sort #3, step 40"."""
    model = parse(name)
    run = next((title_of(run) for run in runs if run.id == model.run), model.run)
    return f"{naming.model_title(name)} of {run}" if model.stage else f"{run}, step {model.step or 0:,}"


def _controls(batch: Batch, runs: Sequence[RunRow], to: Callable[..., None]) -> None:
    """The controls that choose the batch and the number of updates made on it first.

    A checkpoint that was chosen stays the one that is looked at, also when its run makes newer ones.
    """
    names = [*(Model(run.id).pinned.name for run in runs), *(Model(run.id, BASE).name for run in runs)]
    names = names if batch.model in names else [*names, batch.model]
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="one_batch_controls"):
        model = widget_state("one_batch:model", batch.model, tuple(names))
        st.selectbox("Batch sampled from", names, names.index(model.value), key=model.key, width=320,
                     format_func=lambda each: _model_name(each, runs),
                     on_change=lambda: to(model=model.taken()))
        updates = widget_state("one_batch:updates", batch.updates)
        st.segmented_control("Updates before the "
                             "comparison", UPDATES, default=updates.value, key=updates.key, required=True,
                             format_func=lambda count: str(count) if count else "none (on policy)",
                             on_change=lambda: to(updates=updates.taken()),
                             help="Without updates every ratio is 1. After updates the policy differs from the one "
                                  "that sampled the batch, as in later passes over a batch (μ > 1).")
        if batch.updates:
            algorithm = spec_of(parse(batch.model).run).algorithm
            own = algorithm if algorithm in ONLINE else ONLINE[0]
            stepper = widget_state("one_batch:stepper", batch.stepper or own)
            st.selectbox("Updates by", ONLINE, ONLINE.index(stepper.value), key=stepper.key, width=150,
                         format_func=lambda key: ALGORITHMS[key].label, on_change=lambda: to(stepper=stepper.taken()))
        with st.popover("Size", icon=":material/tune:"):
            for words, key in (("Prompts", "prompts"), ("Completions per prompt", "group_size"), ("Seed", "seed")):
                _number(words, key, batch, to)
            others = widget_state("one_batch:others", batch.eval_prompts)
            st.select_slider("Other prompts, to measure the effect of a step", OTHERS, others.value, key=others.key,
                             on_change=lambda: to(eval_prompts=others.taken()))


def _algorithms(batch: Batch, compared: tuple[str, ...], to: Callable[..., None]) -> None:
    """Which algorithms are compared; those of the runs on the page, unless others are chosen."""
    shown = widget_state("one_batch:algorithms", list(batch.algorithms))

    def chosen() -> None:
        keys = tuple(shown.taken())
        to(algorithms=() if keys == compared else keys)

    st.multiselect("Algorithms", ONLINE, shown.value, key=shown.key, max_selections=MOST, on_change=chosen,
                   format_func=lambda key: ALGORITHMS[key].label,
                   help="Algorithms whose gradients are computed on this batch. Default: those of the compared runs.")


def _number(words: str, key: str, batch: Batch, to: Callable[..., None]) -> None:
    number_boxes.number("one_batch", key, words, getattr(batch, key), BOUNDS[key], lambda new: to(**{key: new}))


def _head(found: dict[str, Any]) -> str:
    batch = found["batch"]
    after = ""
    if found["updates"]:
        after = (f", after {found['updates']} update{'s' if found['updates'] > 1 else ''} by "
                 f"{ALGORITHMS[found['stepper']].label}")
    return (f'<div class="rl-status"><b>{batch["prompts"]} prompts × {batch["group_size"]} completions</b>'
            f'<span class="rl-muted">{batch["tokens"]:,} tokens · mean reward {batch["reward"]:.2f} · '
            f'{percent(batch["flat_groups"])} zero-variance groups{after}</span></div>')


def _pushes(found: dict[str, Any], batch: Batch, to: Callable[..., None]) -> None:
    """Two completions, token by token: at first a right one and a wrong one."""
    st.subheader("−∂L/∂log π per token", anchor=False)
    rows = found["completions"]
    words = [f"{in_one_line(each['prompt'], 60)} → {shortened(repr(each['text']), 60)} · "
             f"{'right' if each['exact'] else 'wrong'}" for each in rows]
    other = next((place for place, each in enumerate(rows) if each["exact"] != rows[0]["exact"]), len(rows) - 1)
    for column, which, usual in zip(st.columns(2, gap="large"), LOOKED, (0, other), strict=True):
        with column:
            chosen = getattr(batch, which)
            shown = widget_state(f"one_batch:{which}", chosen if 0 <= chosen < len(rows) else usual, tuple(words))
            st.selectbox("Completion", range(len(words)), shown.value, format_func=words.__getitem__, key=shown.key,
                         label_visibility="collapsed", on_change=_looked, args=(shown, which, usual, to))
            st.html(charts.push_table(found, shown.value))
    st.caption("−∂L/∂log π of each token: blue is pushed up, orange down. The unit is the algorithm's mean |push| on "
               f"this batch, so that rows can be compared.{_left_out(found['algorithms'])}")


def _left_out(algorithms: Sequence[Mapping[str, Any]]) -> str:
    """A sentence that names the terms of the losses that the pushes leave out; empty if there are none."""
    terms = [f"the {term} of {row['label']}" for row in algorithms for term in row.get("left_out", ())]
    depends = "it depends" if len(terms) == 1 else "they depend"
    return f" Left out: {listed(terms)}, because {depends} on the probabilities of all tokens." if terms else ""


def _looked(shown: WidgetState, which: str, usual: int, to: Callable[..., None]) -> None:
    chosen = shown.taken()
    to(**{which: USUAL if chosen == usual else chosen})


def _effects(found: dict[str, Any], batch: Batch, kind: str, hues: Mapping[str, int]) -> None:
    """The effect of one step, measured on other prompts."""
    before, length = found["before"]["reward"], found["step_length"]
    st.subheader("Effect of one step", anchor=False)
    figure_chart(charts.effect_figure(found, kind, hues), "one_batch:effects", title="Effect of one step",
                 caption=batch.model, alt="Change of the mean reward against the KL of one step, for each algorithm")
    same = ("" if length is None else f"Left: steps of length {length:.3g} along each gradient, the longest for which "
                                      f"no algorithm's KL exceeds about 0.01 nats/token on the first of these "
                                      f"prompts. ")
    st.caption(f"{same}Right: the step of the training loop, by AdamW with the run's moments and the algorithm's "
               f"learning rate and gradient clipping. In the first steps of a run, Adam moves every weight by about "
               f"the learning rate. Estimates with 95 % error bars, from {found['before']['prompts']:,} other "
               f"prompts, answered before "
               f"(mean reward {before['mean']:.3f} ± {before['se']:.3f}) and after the step with the same random "
               "numbers. A bar that crosses 0 is no evidence of an effect.")
    with st.expander("All numbers"):
        st.html(charts.effect_table(found))
        st.caption("Mean ± standard error over prompts. Importance-weighted: the mean of (ρ − 1)(R − R̄) over the old "
                   "completions, where ρ is the ratio of a whole completion. It needs no new samples, and its "
                   "variance grows with the step.")
