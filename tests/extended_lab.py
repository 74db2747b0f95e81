"""What a lab must do with choices, a task, a metric and a page that were added as docs/extending.md says.

`test_extending.py` copies the lab, adds them, and runs this file in the copy by pytest. Each run chooses what was
added, so nothing on its way may know a choice by its name.
"""

import json

from app.llm.microscope import arithmetic, cards
from app.training import files
from labcore.catalog import choices
from labcore.catalog.llm.tasks import TASKS
from labcore.catalog.metrics import METRICS
from labcore.catalog.panels import with_switched
from labcore.cli import main as cli
from labcore.exports.handover.plan import Plan
from labcore.exports.handover.tools import TOOLS
from labcore.runs import mixes
from labcore.runs.spec.run_spec import make
from labcore.workers.worker import drive
from tests.app.conftest import as_the_server_is_set, lab, no_supervisor, page, searched_and_compiled_once

__all__ = ["as_the_server_is_set", "lab", "no_supervisor", "page", "searched_and_compiled_once"]
ONLINE = {"sft_steps": 0, "advantage": "group_median", "normalisation": "spread_only", "surrogate": "tempered",
          "exponent": 0.7, "kl_estimator": "half_chi2", "beta": 0.1, "prompts_per_step": 4, "group_size": 4,
          "updates_per_batch": 2}
PAIRS = {"preference_loss": "squared_hinge", "wanted_margin": 0.5, "pairs_per_step": 4, "pair_prompts": 16,
         "eval_prompts": 8}


def run(lab, name: str, task: str, algorithm: str, knobs: dict) -> str:
    """A run of three steps of a mix, made by a worker in this process."""
    spec = make(algorithm_key=algorithm, task_key=task, steps=3, mix=name, knobs=knobs)
    run_id = lab.store.create(spec, mine=True)
    assert drive(lab.store, run_id) == "finished", lab.store.run(run_id).message
    return run_id


def given(test) -> dict:
    """What the surrogate explorer was given."""
    found, = [data for element in test.get("bidi_component") if "usual" in (data := json.loads(element.proto.json)[0])]
    return {**found, "now": {**found["usual"], **found["said"]}}


def text(test) -> str:
    """All that a page says."""
    return " ".join(str(element.value) for kind in ("markdown", "caption", "latex", "html", "warning", "info")
                    for element in test.get(kind) if getattr(element, "value", None)) + " ".join(
        element.proto.body for element in test.get("html"))


def check_an_online_run_of_added_choices(lab, page, capsys, tmp_path):
    run_id = run(lab, "all mine", "reverse", "grpo", ONLINE)
    row = lab.store.run(run_id)
    rows = lab.store.steps_after(run_id)
    assert len(rows) == 3 and {"surrogate/tempered", "ratio/min"} <= rows[-1].metrics.keys() <= {*METRICS}
    assert {"surrogate_tempered", "ratio_min"} <= panels(row, rows)
    latex = row.spec.row.latex
    assert r"\kappa" in latex and r"\operatorname{med}" in latex and r"\pi_{ref}}{\pi} - 1" in latex
    assert row.spec.row.knob("exponent").sign == "κ"
    microscope(row, {"Surrogate": "exp(0.7 × log(", "KL, half_chi2": "½ × (exp("})
    assert page("llm", run=run_id).query_params["run"] == run_id
    for tab in ("Microscope", "Surrogate"):
        page("llm", run=run_id, tab=tab)
    equation = page("llm", run=run_id, tab="Equation")
    assert r"\kappa" in equation.latex[0].value and "Surrogate: tempered" in text(equation)
    explored = given(page("surrogate", run=run_id, exponent="0.9"))
    assert (explored["now"]["focus"], explored["said"]["exponent"]) == ("tempered", 0.9)
    assert "tempered" in explored["drawn"] and "exponent" in {dial["name"] for dial in explored["dials"]}
    handed_over(row.spec, run_id, {"trl": "no equivalent", "verl": "register_policy_loss", "openrlhf": "no equivalent",
                                   "ms-swift": "no equivalent"})
    saved(row.spec, page)
    assert cli.main(["export", run_id, "--to", "trl"]) == 0 and "tempered" in capsys.readouterr().out
    assert cli.main(["export", run_id, "--out", str(tmp_path / "out")]) == 0 and any((tmp_path / "out").iterdir())


def check_a_preference_run_of_an_added_loss(lab, page):
    run_id = run(lab, "my pairs", "sort", "dpo", PAIRS)
    row = lab.store.run(run_id)
    assert r"m-\beta\Delta" in row.spec.row.latex
    page("llm", run=run_id)
    page("llm", run=run_id, tab="Microscope")
    pair = files.newest(run_id, "samples", 3)["pairs"][0]
    found = {line.name: line for line in arithmetic.of_pair(pair, row.spec.knobs)}
    assert found["Loss"].worked.startswith("max(0, 0.5 − ") if "Margin" in found else found
    handed_over(row.spec, run_id, dict.fromkeys(TOOLS, "no"))
    saved(row.spec, page)


def check_the_catalog_the_task_and_the_page(lab, page, capsys):
    assert cli.main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert "reverse" in listed["tasks"] and "reverse" in TASKS
    surrogate = next(knob for knob in listed["algorithms"]["grpo"]["knobs"] if knob["key"] == "surrogate")
    assert "tempered" in surrogate["choices"]
    assert cli.main(["list"]) == 0 and "Credits" in text(page("help"))
    assert page("credits").header[0].value == "Credits"
    assert any("**Credits**" in link.proto.label for link in page("home").get("page_link"))
    assert page("llm", algorithm="grpo", surrogate="tempered", mix="mine")


def panels(row, rows) -> set[str]:
    """The charts that the run's page has."""
    return {*with_switched(row.spec.row.panels, row.spec.knobs, {key for each in rows for key in each.metrics})}


def microscope(row, wanted: dict[str, str]) -> None:
    """The arithmetic that was declared stands at a token, and comes to what was recorded."""
    samples = files.newest(row.id, "samples", 3)
    group = next(iter(cards.found(samples)["groups"]))
    whole = group["completions"][0]
    for when in (arithmetic.MET, arithmetic.AFTER):
        found = {line.name: line for line in arithmetic.lines(group, arithmetic.at(whole, when), 0, row.spec.knobs)}
        for name, worked in wanted.items():
            assert found[name].worked.startswith(("(" + worked, worked)), (when, name, found[name])
        assert found["Advantage"].result and choices.ADVANTAGE["group_median"].label in found["Advantage"].note


def handed_over(spec, run_id: str, notes: dict[str, str]) -> None:
    """Each script names what has no equivalent."""
    for key, tool in TOOLS.items():
        script = tool.script(Plan(run_id, spec))
        assert notes[key] in script, (key, script[:3000])
        assert not [line.knob for line in tool.mapped(Plan(run_id, spec)) if line.unsupported and not line.note]


def saved(spec, page) -> None:
    """The mix can be saved, and begun from again."""
    mix = mixes.of_spec(spec, "saved mine")
    mixes.save(mix, replace=True)
    assert mixes.find("saved mine").knobs == mix.knobs
    page("llm", mix="saved mine")
