"""The command `list`: one line for each name, and single names in full."""

from __future__ import annotations

import json
import re

from labcore.catalog.kinds import KINDS
from labcore.catalog.presets import PRESETS
from labcore.cli.main import main
from tests.every import every
from tests.words import says


def printed(capsys, *arguments: str) -> str:
    assert main(["list", *arguments]) == 0
    return capsys.readouterr().out


def test_the_overview_has_a_line_for_each_name_and_no_knobs(capsys):
    said, row = printed(capsys), KINDS["llm"]
    names = [line.split()[0] for line in said.splitlines() if "  " in line]
    assert names == [*row.algorithms, *row.tasks, *row.models, *(key for key, each in PRESETS.items()
                                                                 if each.kind == "llm")]
    assert len(said.splitlines()) < len(names) + 20 and "clip_low" not in said


@every("kind", KINDS)
def test_every_name_that_the_overview_prints_may_be_given_and_is_in_the_json(capsys, kind):
    """All names together, and one name of each table alone. The names are those that a new run of the kind may have."""
    named = re.compile(r"(\S+) {2,}\S")
    names = [found[1] for line in printed(capsys, "--kind", kind).splitlines() if (found := named.match(line))]
    tables = json.loads(printed(capsys, "--kind", kind, "--json"))
    assert names == [key for table in tables.values() for key in table]
    assert (set(tables["algorithms"]), set(tables["tasks"])) == (set(KINDS[kind].algorithms), set(KINDS[kind].tasks))
    assert set(tables["models"]) == (set(KINDS[kind].models) if len(KINDS[kind].models) > 1 else set())
    said = printed(capsys, "--kind", kind, *names)
    assert [name for name in dict.fromkeys(names) if not re.search(rf"^{re.escape(name)}  ", said, re.MULTILINE)] == []
    for table in tables.values():
        for name in [*table][:1]:
            assert printed(capsys, "--kind", kind, name).startswith(f"{name}  ")


def test_names_are_printed_in_full(capsys):
    said = printed(capsys, "grpo", "sort", "no_clip", "tiny")
    assert says(said, "grpo", "clip_low", "0.2", "live", "sort", "letters", "6", "tiny", "no_clip")
    assert "pretrained 1e-06, LoRA 1e-05" in said and "compare with: clip" in said
    assert all(sentence in said for sentence in PRESETS["no_clip"].look) and "\nppo" not in said
    assert says(printed(capsys, "guess"), "Find a hidden number", "largest", "guess", *PRESETS["guess"].look[:1])


def test_json_has_the_named_entries_with_their_knobs(capsys):
    found = json.loads(printed(capsys, "ppo", "--json"))
    assert {title: [*table] for title, table in found.items()} == {
        "algorithms": ["ppo"], "tasks": [], "models": [], "presets": []}
    assert "gae_lambda" in {knob["key"] for knob in found["algorithms"]["ppo"]["knobs"]}


def test_an_unknown_name_is_one_sentence(capsys):
    assert main(["list", "grop"]) == 1
    assert says(capsys.readouterr().err, "no algorithm, task, model or preset", "'grop'", "llm", "did you mean 'grpo'")
