"""Sentences of the lab on its pages: no key of a knob or a choice is left where it was marked, and none of them is
marked amiss."""

import ast
import re
from pathlib import Path

import pytest

from app.marked import worded
from labcore.catalog import choices, kinds
from labcore.catalog.mix.cautions import CAUTIONS
from labcore.runs.files.paths import home
from labcore.runs.spec.run_spec import every_knob

ROOT = Path(__file__).parents[2]
KEYS = {*every_knob(), *(choice.key for family in choices.FAMILIES for choice in family)}
# One with an underscore, which no other word has, without its mark.
BARE = re.compile(rf"(?<![\w`.\-/])({'|'.join(key for key in KEYS if '_' in key)})(?![\w`.(])")


def test_a_sentence_begins_with_the_words_of_the_run_that_it_is_about():
    assert worded("`beta` is 200.", kinds.algorithm("dpo").knobs) == "Inverse temperature β is 200."
    assert worded("`beta` is 200.") == "KL coefficient β is 200."


@pytest.mark.parametrize("said, shown", [
    ("`length_low` 6 is above `length_high` 4: swap them.", "Shortest 6 is above Longest 4: swap them."),
    ("With `group_size=4`, `mini_batches=5`: `mini_batches` 5 does not divide 16.",
     "With G=4, Mini-batches=5: Mini-batches 5 does not divide 16."),
    ("`temperature` cannot change during a run: start a new run with `temperature=2`.",
     "Temperature τ cannot change during a run: start a new run with τ=2."),
    ("The advantage `one` is fixed: set `normalisation=none` or `aggregation=token_mean`.",
     "The advantage “1” is fixed: set Normalisation of advantages “none” or Aggregation “mean over all tokens of the "
     "update”.")])
def test_a_sentence_names_all_its_knobs_and_choices_alike(said, shown):
    row, task = kinds.algorithm("grpo"), kinds.task("prompts", "llm")
    assert worded(said, (*row.knobs, *task.knobs)) == shown


@pytest.mark.parametrize("said", [
    "TypeError: <lambda>() takes beta", "beta is of no file", "KeyError: 'clip_low'", "With beta=1: what you wrote",
    "clip_low is empty: `beta", "There is no file /tmp/beta/group_size.jsonl.", "`any` is no knob of GRPO.", "a`b"])
def test_what_is_not_marked_or_no_knob_stays(said):
    assert worded(said, kinds.algorithm("grpo").knobs) == said


def test_what_the_lab_keeps_is_called_without_its_folder_and_another_path_is_left_whole():
    said = (f"There is no file {home()}/uploads/0f/my pairs.jsonl: the model of {home()}/base/3fa81c/model, and "
            f"'{home()}/grpo-sort-ab12/checkpoints/step-000200/policy'. ")
    whole = (f"The details are in {home()}/grpo-sort-ab12/worker.log: it cannot be kept in {home()}/uploads/0f (no "
             f"space), nor in {home()}/base/3fa81c/model/config.json or /elsewhere{home()}/uploads/0f/x.")
    assert worded(said + whole) == (
        f"There is no file my pairs.jsonl: the model of SFT base 3fa81c, and 'grpo-sort-ab12@200'. {whole}")


def test_every_caution_is_in_words():
    declared = [caution.text for family in choices.FAMILIES for choice in family for caution in choice.cautions]
    declared += [caution.text for loop in CAUTIONS.values() for caution in loop]
    assert any("_mean" in text for text in declared)
    for text in declared:
        assert not re.search(r"[a-z]{2,}_[a-z]|`", worded(text)), text


def test_no_error_names_a_knob_without_its_mark():
    """Where labcore says what is wrong: each key with an underscore, which no other word has, is marked. The command
    line's own errors name options."""
    found = []
    for path in sorted((ROOT / "labcore").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for raised in ast.walk(ast.parse(source)) if path.parts[-2] != "cli" and "LabError(" in source else ():
            if isinstance(raised, ast.Call) and getattr(raised.func, "id", "") == "LabError":
                said = "".join(part.value for part in ast.walk(raised)
                               if isinstance(part, ast.Constant) and isinstance(part.value, str) and " " in part.value)
                found += [f"{path.relative_to(ROOT)}:{raised.lineno}: {each[0]}"
                          for each in BARE.finditer(said.replace("algorithm reward_model", ""))]
    assert not found


def test_no_help_names_a_key():
    """A form lists the choices by their labels, so its help must not call them otherwise."""
    assert not {knob.key: found[0] for knob in every_knob().values() if (found := BARE.search(knob.help))}
