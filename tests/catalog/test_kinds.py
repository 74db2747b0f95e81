"""The contract of the tables: every row, knob, choice, panel and task keeps it, those of tomorrow too."""

import importlib
import json
import math
import re
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
import torch

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.choices import (
    ADVANTAGE,
    FAMILIES,
    LOSSES,
    NO_LOSS,
    PREFERENCE_LOSS,
    SURROGATE,
    needs_teacher,
)
from labcore.catalog.kinds import KINDS, algorithm, kind, task
from labcore.catalog.knob import Knob, suggestion
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.llm.models import MODELS
from labcore.catalog.llm.tasks import TASKS
from labcore.catalog.metrics import METRICS, metric
from labcore.catalog.panels import PANELS, SWITCHED
from labcore.classic.envs.gym_world import describe
from labcore.errors import LabError
from labcore.runs.spec.run_spec import RunSpec, knobs_of, make
from tests.every import every
from tests.llm.tools import SOMETIMES as NOT_IN_ALL
from tests.llm.tools import one_of_each_sort, records, session

LANGUAGE = ("llm", "exact")  # kinds whose rows are choices
FAMILY = {family.key: family for family in FAMILIES}
ROWS = [(key, row) for key, of in KINDS.items() for row in of.algorithms]
WORK = [(key, work) for key, of in KINDS.items() for work in of.tasks]
PAIRS = [(key, row, work) for key, row in ROWS for work in KINDS[key].tasks
         if algorithm(row, key).learns(task(work, key))]
TASKS_OF = {row: [work for *of, work in PAIRS if tuple(of) == row] for row in ROWS}
# Each different declaration once, with the key of its knob.
KNOBS = {knob: knob.key for key, row, work in PAIRS for knob in knobs_of(algorithm(row, key), task(work, key))}
LOOPS = set(kind("llm").loops)
# Where there is none, the method is the loop.
LOOPS_OF = {key: set(of.loops) or {"deep", "deep_values"} for key, of in KINDS.items()}
DATA = {"prompts": '{"prompt": "1+1=", "answer": "2"}\n', "text": "to be or not to be, " * 50,
        "preferences": '{"prompt": "a", "chosen": "b", "rejected": "c"}\n'}
# What a number or a switch trades for what; "On: … Off: …" for a switch.
TRADE_OFF = re.compile(r"\b(higher|lower|more|longer|shorter|fewer)\b[^.]*:", re.IGNORECASE)
SWITCH = re.compile(r"\bOn: .*\bOff: ", re.IGNORECASE)
NO_TRADE = {"maze_seed"}  # another number is neither more nor less: only another maze


@pytest.fixture
def data(tmp_path):
    def write(key):
        form = TASKS[key].data if key in TASKS else ""
        if not form:
            return None
        path = tmp_path / f"{form}.data"
        path.write_text(DATA[form], encoding="utf-8")
        return str(path)
    return write


def named(target: str):
    """What "module:name" names."""
    module, name = target.split(":")
    return getattr(importlib.import_module(module), name)


# ---------------------------------------------------------------------------- kinds

@pytest.mark.parametrize("key", KINDS)
def test_a_kind_is_wholly_declared(key):
    row = kind(key)
    assert row.key == key and row.label and row.task_title
    assert row.algorithm in row.algorithms and row.task in row.tasks and row.model == row.models[0]
    assert all(own == other.key for table in (row.algorithms, row.tasks) for own, other in table.items())
    assert METRICS[row.speed].about == "machine"
    assert "seconds" in row.axes and len(set(row.axes.values())) == len(row.axes) > 1
    session_class = named(row.session)
    assert all(callable(getattr(session_class, name)) for name in ("start", "run", "save"))
    assert all(callable(named(target)) for target in (row.check, row.replay, *row.loops.values()) if target)


@every("key, name", [pair for pair in ROWS if pair[0] not in LANGUAGE])
def test_a_classic_row_names_its_method_and_what_its_session_holds(key, name):
    row, of = algorithm(name, key), KINDS[key]
    assert [other.key for other in of.algorithms.values() if other.method == row.method] == [name], "one method a row"
    assert named(row.method).__doc__
    targets = [value for value in asdict(row).values() if isinstance(value, str) and value.startswith("labcore.")]
    assert row.method in targets and all(callable(named(target)) for target in targets)
    if of.loops:
        assert row.loop in of.loops


@pytest.mark.parametrize("name", KINDS["cartpole"].algorithms)
def test_the_networks_of_a_deep_row_fit_its_optimizers(name):
    row = algorithm(name, "cartpole")
    spec = make(kind="cartpole", algorithm_key=name, task_key="CartPole-v1")
    networks = named(row.networks)(describe("CartPole-v1"), spec.knobs, torch.Generator().manual_seed(0))
    assert row.acts in networks and set(row.optimizers) <= set(networks)
    assert len(networks) == len(row.models)
    for network, target in row.optimizers.items():
        assert named(target)(networks[network]).param_groups[0]["params"]


# ---------------------------------------------------------------------------- rows

@every("key, row", ROWS)
def test_a_default_spec_is_valid_and_survives_json(key, row, data):
    for work in TASKS_OF[key, row]:
        knobs = {knob.key: knob.default for knob in knobs_of(algorithm(row, key), task(work, key))}
        alone = key == "llm" and needs_teacher(knobs) and not knobs["teacher"]
        given = {"teacher": "their/model"} if alone else {}  # a task without a teacher of its own
        spec = make(kind=key, algorithm_key=row, task_key=work, data=data(work), knobs=given)
        again = RunSpec.from_json(spec.to_json())
        assert again == spec and again.hash() == spec.hash(), work
        assert again.row is algorithm(row, key) and again.task_row is task(work, key) and again.kind_row is KINDS[key]
        assert all(type(value) in (bool, int, float, str) for value in spec.knobs.values()), work
        assert set(spec.knobs) == {knob.key for knob in knobs_of(spec.row, spec.task_row)}, work
        # What the row says of itself, the task may change; nothing else does.
        own = {knob.key: knob.default for knob in spec.row.knobs} | dict(
            spec.task_row.own(spec.row.loop, spec.row.key)) | given | (
                {"teacher": "self"} if knobs.get("teacher") == "self" else {})
        assert all(spec.knobs[knob.key] == own[knob.key] for knob in spec.row.knobs), work


@every("key, name", ROWS)
def test_a_row_says_what_it_is(key, name):
    row = algorithm(name, key)
    json.dumps(asdict(row))
    assert row.key == name and row.loop in LOOPS_OF[key] and row.steps > 0 and row.models
    for text in (row.summary, row.watch):
        assert text.endswith(".") and text[0].isupper()
    assert re.search(r"\b(19|20)\d\d\b", row.paper)
    for opening, closing in ("{}", (r"\Big[", r"\Big]"), (r"\Big(", r"\Big)"), (r"\big[", r"\big]"),
                             (r"\big(", r"\big)"), (r"\begin", r"\end")):
        assert row.latex.count(opening) == row.latex.count(closing), opening
    assert row.panels and len(set(row.panels)) == len(row.panels) and set(row.panels) <= set(PANELS)


@every("key, name", ROWS)
def test_a_row_names_functions_that_there_are(key, name):
    """They stand beside the equation, so they say what they compute and where it is from."""
    row = algorithm(name, key)
    assert row.source or key in LANGUAGE  # a language model's row names its functions by its choices
    for target in row.source:
        function = named(target)
        assert function.__module__ == target.split(":")[0] and function.__doc__


@every("key", ALGORITHMS)
def test_the_loss_of_a_language_model_comes_first_and_its_machine_last(key):
    row = ALGORITHMS[key]
    assert row.latex.startswith(("L = ", r"\begin{gathered}L = "))
    assert row.panels[-2:] == ("speed", "memory")
    assert (row.panels.index("loss") > row.panels.index("grad_norm")) == (row.loop != "sft")  # there it is what falls


@every("key", ALGORITHMS)
def test_a_row_holds_the_models_that_its_choices_need(key):
    row = ALGORITHMS[key]
    chosen = [knob.default for knob in row.knobs if knob.key == "advantage"]
    needs_critic = bool(chosen) and ADVANTAGE[chosen[0]].critic
    assert row.models[0] == "policy" and ("critic" in row.models) == needs_critic
    losses = [PREFERENCE_LOSS[knob.default] for knob in row.knobs if knob.key == "preference_loss"]
    compares = any(loss.reference for loss in losses) if losses else any(knob.key == "beta" for knob in row.knobs)
    assert ("reference" in row.models) == compares
    assert ("critic_learning_rate" in {knob.key for knob in row.knobs}) == needs_critic


@pytest.mark.parametrize("key", one_of_each_sort(key for key, row in ALGORITHMS.items() if row.loop != "online"))
def test_a_tiny_run_logs_every_number_that_its_charts_show(key):
    measured = {knob.key for knob in ALGORITHMS[key].knobs} & {"eval_every"}  # test_online has the other rows
    started = session(key, letters=True, steps=2, **dict.fromkeys(measured, 1))
    drawn = {name for panel in ALGORITHMS[key].panels for name in PANELS[panel].metrics} - NOT_IN_ALL
    drawn -= {name for name in drawn if METRICS[name].about == "machine"}  # the worker's to say
    if started.knobs.get("group_size", 1) == 1 or measured:
        drawn -= set(PANELS["zero_variance"].metrics)  # there is no group
    for record in records(started):
        assert drawn <= set(record.metrics) <= set(METRICS)
        assert all(math.isfinite(value) for value in record.metrics.values())


SMALL = {"ppo": {"epochs": 2}, "a2c": {"rollouts_per_step": 2}, "trpo": {"critic_epochs": 2},
         "reinforce": {"environments": 4, "critic_epochs": 2, "variance_every": 1},
         "dqn": {"gradient_steps": 2, "learning_starts": 0}}
# Where a number is not at every step: there was nothing to measure.
SOMETIMES = {
    "maze": {"moves_to_goal": "no episode ended in a goal", "value_change": "the policy was made better, V was not"},
    "cartpole": {"episode_return": "no episode ended", "episode_length": "no episode ended"}}


@pytest.mark.parametrize("key, name", [pair for pair in ROWS if pair[0] not in LANGUAGE])
def test_a_tiny_classic_run_logs_every_number_that_its_charts_show(key, name):
    row, given = algorithm(name, key), {"pace": 0} if key == "maze" else {
        **SMALL[name], "eval_every": 1, "eval_episodes": 1, "rollout_steps": 40}
    known = {knob.key for knob in row.knobs}
    spec = make(kind=key, algorithm_key=name, task_key={"maze": "textbook"}.get(key, KINDS[key].task), steps=40 if
                key == "maze" else 2, knobs={name: value for name, value in given.items() if name in known})
    drawn = {metric for panel in row.panels for metric in PANELS[panel].metrics}
    drawn -= {metric for metric in drawn if METRICS[metric].about == "machine"}  # the worker's to say
    found = list(named(KINDS[key].session).start(spec).run())
    for record in found:
        assert drawn - set(SOMETIMES[key]) <= set(record.metrics) <= set(METRICS)
        assert all(math.isfinite(value) for value in record.metrics.values())
        assert record.env_steps > 0 or row.loop == "planning"
    assert drawn <= set().union(*(record.metrics for record in found))


# ---------------------------------------------------------------------------- knobs

@every("key", sorted({*KNOBS.values()}))
def test_a_knob_is_wholly_declared(key):
    for knob in [knob for knob, of in KNOBS.items() if of == key]:
        wholly_declared(knob)


def wholly_declared(knob: Knob) -> None:
    assert knob.check(knob.default) == knob.default and type(knob.check(knob.default)) is knob.type
    assert knob.parse(str(knob.default)) == knob.default
    assert knob.label and knob.help.endswith(".") and knob.effect in ("live", "next batch", "restart")
    if knob.choices:
        assert explained(knob), f"{knob.key}: its help names neither each choice nor a family that does"
    elif knob.type is bool:
        assert SWITCH.search(knob.help)
    elif knob.type is not str and knob.key not in NO_TRADE:
        assert TRADE_OFF.search(knob.help), f"{knob.key}: its help does not say what more or less of it brings"
        assert knob.low is not None and knob.high is not None and knob.low < knob.high
    if knob.safe:
        low, high = knob.safe
        assert knob.low <= low < high <= knob.high and (knob.scale == "linear" or low > 0)
    if knob.type in (int, float):
        for beyond in (knob.low - 1, knob.high + 1, math.nan, math.inf):
            with pytest.raises(LabError, match=knob.key):
                knob.check(beyond)
    with pytest.raises(LabError, match=knob.key):
        knob.check(object())


def said(words: str, text: str) -> bool:
    return re.search(rf"(^|\W){re.escape(words)}\b", text, re.IGNORECASE) is not None


def explained(knob: Knob) -> bool:
    if knob.key in LOSSES and knob.key not in FAMILY:  # the same family once more, or none
        return set(knob.choices) == {NO_LOSS, *PREFERENCE_LOSS.names} and f"{NO_LOSS}: " in knob.help
    if knob.key in FAMILY:
        return {*knob.choices} <= {*FAMILY[knob.key].names} and all(choice.label for choice in FAMILY[knob.key].members)
    return all(said(choice.replace("_", " "), knob.help) or all(f"{part}: " in knob.help for part in choice.split("_"))
               for choice in knob.choices)


def test_no_knob_is_declared_twice():
    for key, row, work in PAIRS:
        keys = [knob.key for knob in knobs_of(algorithm(row, key), task(work, key))]
        assert len(set(keys)) == len(keys), (key, row, work)


def test_symbols_are_written_in_plain_letters():
    row = algorithm("grpo")
    assert [row.knob(key).name for key in ("beta", "clip_low", "learning_rate", "updates_per_batch", "top_p")] == [
        "β", "ε_low", "η", "μ", "Top-p"]
    assert [row.knob(key).title for key in ("beta", "clip_low", "top_p")] == [
        "KL coefficient β", "Clip, low side ε_low", "Top-p"]
    assert algorithm("ppo").knob("gae_lambda").title == "GAE λ", "the letter once"
    assert algorithm("reinforce", "cartpole").knob("psi").name == "Ψ_t"


def test_a_knob_is_called_the_same_everywhere():
    """One key, one sign; and no sign holds a rest of LaTeX."""
    signs = {}
    for knob in KNOBS:
        signs.setdefault(knob.key, set()).add(knob.sign)
    assert {key: found for key, found in signs.items() if len(found) > 1} == {}
    assert not [knob.key for knob in KNOBS if set(knob.title) & set("\\{}$*:`[]")]


# Live knobs with a letter that the equation of what is learnt does without.
BESIDE = {
    **{key: {"learning_rate": "the optimizer's", "critic_learning_rate": "the optimizer's"} for key in LANGUAGE},
    "maze": {"epsilon": "how it walks", "epsilon_end": "how it walks", "alpha_decay": "what α falls by"},
    "cartpole": {"learning_rate": "the optimizer's", "critic_learning_rate": "the optimizer's",
                 "kl_target": "what β follows", "value_clip": "the critic's loss", "epsilon_start": "how it acts",
                 "epsilon_end": "how it acts", "epochs": "how often the gradient is taken"}}


@every("key, name", ROWS)
def test_the_live_knobs_stand_in_the_equation(key, name):
    """What can be turned while it runs is a letter of what is learnt; so is G where groups count."""
    row = algorithm(name, key)
    beside = {*BESIDE[key], *(("beta",) if any((knob.key, knob.default) == ("kl_placement", "off")
                                               for knob in row.knobs) else ())}
    for knob in row.knobs:
        if knob.effect == "live" and knob.symbol and knob.key not in beside:
            assert stands(knob.symbol, row), f"{knob.symbol} ({knob.key}) is not in the equation of {row.label}"
    symbols = [knob.symbol for knob in row.knobs if knob.symbol]
    assert len(set(symbols)) == len(symbols)
    compares = any(ADVANTAGE[knob.default].group for knob in row.knobs if knob.key == "advantage")
    assert not compares or "G" in row.latex


def stands(symbol: str, row: Algorithm) -> bool:
    """Whether the letter itself is in the equation: α_V is no α."""
    return re.search(re.escape(symbol) + r"(?![A-Za-z_])", row.latex) is not None


# ---------------------------------------------------------------------------- metrics, panels, tasks, models

@every("key", METRICS)
def test_a_metric_says_what_it_is(key):
    declared = metric(key)
    assert declared.key == key and declared.label and declared.help.endswith(".") and declared.digits >= 0
    assert not declared.healthy or declared.healthy.endswith(".")


@every("key", PANELS)
def test_a_panel_draws_metrics_of_one_kind(key):
    panel = PANELS[key]
    drawn = [METRICS[name] for name in panel.metrics]
    assert panel.key == key and panel.title and drawn
    of_mixes = {f"surrogate_{choice.key}" for choice in SURROGATE}
    assert key in {*SWITCHED, *of_mixes} or any(key in algorithm(name, of).panels for of, name in ROWS)
    assert len({metric.about for metric in drawn}) == 1
    assert len({metric.unit.split(" ")[0] for metric in drawn}) == 1  # "share of groups" beside "share of completions"
    beside = [METRICS[name] for name in panel.held_out]
    assert {metric.unit for metric in beside} <= {*(metric.unit for metric in drawn), "share of prompts", "nats/token"}
    assert all(metric.short.startswith("held out") for metric in beside)


def test_the_value_of_the_greedy_policy_has_one_name():
    number = METRICS["start_value/greedy"]  # in tiles, the status line, lessons, and of its chart
    assert PANELS["start_value"].metrics[0] == number.key and PANELS["start_value"].title == number.label
    assert number.symbol == "V_{greedy}(s_0)"


@pytest.mark.parametrize("key", TASKS)
def test_a_task_can_be_made(key, data):
    row = TASKS[key]
    assert row.key == key and row.label and row.help.endswith(".") and row.example and set(row.loops) <= set(LOOPS)
    module, name = row.source.split(":")
    source = getattr(importlib.import_module(module), name)
    made = source({knob.key: knob.default for knob in row.knobs}, Path(data(key)) if row.data else None)
    assert callable(made.problems) and callable(made.score) and isinstance(made.characters, str)
    known = {knob.key for row in ALGORITHMS.values() for knob in row.knobs}
    assert set(row.defaults) <= known and not known & {knob.key for knob in row.knobs}
    assert row.verifiable or "online" not in row.loops


@every("key, name", [pair for pair in WORK if pair[0] != "llm"])
def test_a_classic_task_can_be_made(key, name):
    row, of = task(name, key), KINDS[key]
    assert row.key == name and row.label and row.help.endswith(".") and set(row.loops) <= LOOPS_OF[key]
    knobs = {knob.key: knob.default for knob in row.knobs}
    made = named(of.check)(row, knobs)
    known = {knob.key for other in of.algorithms.values() for knob in other.knobs}
    assert set(row.defaults) <= known and not known & set(knobs)
    if key == "maze":
        gammas = {knob.default for other in of.algorithms.values() for knob in knobs_of(other, row)
                  if knob.key == "gamma"}
        assert gammas == {made.gamma}, "the discount that the maze was made for"
        assert not made.unreachable_goals()


@pytest.mark.parametrize("key", MODELS)
def test_a_model_size_fits_together(key):
    size = MODELS[key]
    assert size.key == key and key in size.label and size.parameters in size.label
    assert size.hidden % size.heads == 0 and (size.hidden // size.heads) % 2 == 0 and size.context > 0


# ---------------------------------------------------------------------------- names nobody knows

@pytest.mark.parametrize("look_up, near, suggested", [
    (algorithm, "grpp", "grpo"), (task, "sotr", "sort"), (metric, "rewards", "reward"), (kind, "mase", "maze"),
    (partial(algorithm, of="maze"), "sarsaa", "sarsa"), (partial(task, of="maze"), "clif", "cliff"),
    (partial(algorithm, of="cartpole"), "dqm", "dqn"),
    (algorithm("grpo").knob, "betta", "beta"), (ADVANTAGE.__getitem__, "leave_one_in", "leave_one_out")])
def test_an_unknown_name_gets_a_suggestion(look_up, near, suggested):
    with pytest.raises(LabError, match=rf"{near!r}: did you mean '{suggested}"):
        look_up(near)
    with pytest.raises(LabError, match=r"'qqqqqq': choose one of .*, .*\.$"):
        look_up("qqqqqq")


@pytest.mark.parametrize("word", ["nope", "x" * 5000, "", 7])
def test_a_sentence_lists_a_few_of_many_the_nearest_first(word):
    known = [f"knob_{number}" for number in range(500)]
    assert len(suggestion(word, known)) < 120 and suggestion(word, known).endswith(" and 492 more.")
    assert suggestion("nope", ["a", "b"]) == "choose one of a, b." and suggestion("nope", [])
    assert suggestion("knob_7x", known) == "did you mean 'knob_7'?"
    with pytest.raises(LabError) as error:
        make(algorithm_key="grpo", task_key="sort", knobs={str(word): 1})
    assert len(str(error.value)) < 300
