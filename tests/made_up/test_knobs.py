"""Any value of any knob of any algorithm: taken in the knob's own type and bounds, or refused in one sentence."""

import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from labcore.catalog.kinds import KINDS
from labcore.catalog.knob import Knob
from labcore.cli import commands
from labcore.cli.main import main
from labcore.errors import LabError
from labcore.runs.spec.run_spec import RunSpec, every_knob, make, with_knob
from tests.made_up.values import VALUES, WORDS, answered, few, fewer

ROWS = [(kind.key, row.key) for kind in KINDS.values() for row in kind.algorithms.values()]


def spec_of(kind: str, algorithm: str, **more) -> RunSpec:
    """The row on the first task that it learns from and that needs no file."""
    row = KINDS[kind].algorithms[algorithm]
    task = next(task for task in KINDS[kind].tasks.values() if row.learns(task) and not task.data)
    return make(kind=kind, algorithm_key=algorithm, task_key=task.key, **more)


# A knob for each that `Knob.check` tells apart.
KNOBS = list({(knob.key, knob.type, knob.low, knob.high, knob.choices): knob for kind in KINDS.values()
              for row in (*kind.algorithms.values(), *kind.tasks.values()) for knob in row.knobs}.values())


def fits(knob: Knob, taken: object) -> bool:
    """Whether a value that was taken is in the knob's type and bounds."""
    if type(taken) is not knob.type or (isinstance(taken, float) and not math.isfinite(taken)):
        return False
    return isinstance(taken, str | bool) or (
        (knob.low is None or taken >= knob.low) and (knob.high is None or taken <= knob.high))


@few
@given(st.lists(VALUES, min_size=8, max_size=8))
@example([10**400])
def test_every_knob_takes_or_refuses_any_value(values):
    for place, knob in enumerate(KNOBS):
        value = values[place % len(values)]
        taken = answered(knob.check, value)
        assert taken is None or fits(knob, taken), (knob.key, value)


@settings(few, max_examples=40)
@given(st.sampled_from(ROWS), st.data())
def test_a_spec_takes_or_refuses_any_value(row, data):
    labels = {"knobs": {"labelled_pairs": "0" * 16}} if row[1] == "reward_model" else {}
    usual = spec_of(*row, **labels)
    knob = data.draw(st.sampled_from([*usual.row.knobs, *usual.task_row.knobs]))
    spec = answered(spec_of, *row, knobs={**usual.knobs, knob.key: data.draw(VALUES)})
    if spec is not None:
        assert fits(knob, spec.knobs[knob.key])
        assert RunSpec.from_json(spec.to_json()) == spec
        spec.to_json().encode()


@few
@given(st.sampled_from([knob for knob in every_knob().values() if knob.type is str and not knob.choices]), WORDS)
@example(every_knob()["pattern"], "\ud800")
def test_a_text_can_be_kept(knob, text):
    if (taken := answered(knob.check, text)) is not None:
        taken.encode()


@few
@given(st.sampled_from(ROWS), st.data())
def test_a_change_during_the_run(row, data):
    usual = spec_of(*row)
    knob = data.draw(st.sampled_from([*usual.row.knobs, *usual.task_row.knobs]))
    changed = answered(with_knob, usual, knob.key, data.draw(VALUES))
    if changed is not None:
        assert knob.effect != "restart" and type(changed.knobs[knob.key]) is knob.type


@fewer
@given(st.sampled_from(ROWS), st.data())
def test_on_the_command_line(row, data):
    kind, algorithm = row
    usual = spec_of(*row)
    knob = data.draw(st.sampled_from([*usual.row.knobs, *usual.task_row.knobs]))
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "Store", lambda: asked.append("made") or Stop.now())
        status = main(["run", "--kind", kind, "--algorithm", algorithm, "--task", usual.task, "--set",
                       f"{knob.key}={data.draw(WORDS)}"])
    assert status == 1


class Stop:
    """Ends a command where it would begin to train."""

    @staticmethod
    def now():
        raise LabError("It would be run.")


@few
@given(VALUES, VALUES, VALUES, VALUES)
def test_the_other_fields(seed, steps, threads, device):
    for field, value in (("seed", seed), ("steps", steps), ("threads", threads), ("device", device)):
        spec = answered(make, algorithm_key="grpo", task_key="sort", **{field: value})
        assert spec is None or json.loads(spec.to_json())[field] == getattr(spec, field)


@few
@given(WORDS, WORDS, WORDS, WORDS, WORDS)
def test_the_names(kind, algorithm, task, model, mix):
    answered(make, algorithm_key=algorithm, task_key="sort")
    answered(make, algorithm_key="grpo", task_key=task)
    answered(make, kind="cartpole", algorithm_key="dqn", task_key=task)
    answered(make, kind=kind, algorithm_key="grpo", task_key="sort")
    for spec in (answered(make, algorithm_key="grpo", task_key="sort", model=model),
                 answered(make, algorithm_key="grpo", task_key="sort", mix=mix),
                 answered(make, algorithm_key="grpo", task_key="sort", data=model)):
        if spec is not None:
            spec.to_json().encode()
