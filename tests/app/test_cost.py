"""The fold with what algorithms cost: counted once it is open, measured one after the other once that is asked for."""

import html
import re
from functools import partial

from app import cost as view
from labcore.llm.sizing import cost
from labcore.runs.spec.run_spec import RunSpec, make
from tests.app.seeding import seed

POLICY = {"name": "policy", "parameters": 1000, "learnt": 1000}


def replied(spec):
    """What the jobs of the page give."""
    if spec["job"] == "models_held":
        return {"held": [[POLICY] for _ in spec["specs"]]}
    seconds = 0.4 if RunSpec.from_json(spec["spec"]).algorithm == "ppo" else 0.1
    return {"activations": 5000, "seconds": [seconds], "measured": 1_700_000_000.0}


def texts(test):
    return html.unescape(re.sub("<[^>]+>", " ", " ".join(each.value for each in test.markdown) + " ".join(
        each.proto.body for each in test.get("html"))))


def test_the_fold_is_counted_when_it_is_opened_and_measured_when_asked(page, asked, monkeypatch):
    few = cost.USUAL[:3]
    monkeypatch.setattr(cost, "beside", partial(cost.beside, keys=few))
    asked.reply = replied
    test = page("llm", algorithm="grpo", model="tiny")
    assert view.TITLE in [each.label for each in test.expander] and not asked.asked, "nobody has opened it"
    test.session_state["cost:llm"] = True
    test.run()
    assert [spec["job"] for spec in asked.asked] == ["models_held"]
    assert "policy" in texts(test) and "not measured yet" in " ".join(each.value for each in test.caption)
    measure = next(each for each in test.button if each.label.startswith("Measure 3 algorithms"))
    measure.click().run()
    for _ in few:
        test.run()
    assert [spec["job"] for spec in asked.asked[1:]] == ["cost"] * len(few)
    assert "0.25" in texts(test) and "100 ms" in texts(test)
    assert "Measure again" in [each.label for each in test.button]
    assert "Measured on this machine, 1" in " ".join(each.value for each in test.caption)


def test_a_run_has_it_in_a_tab(page, lab, asked):
    asked.reply = replied
    test = page("llm", run=seed(lab.store, "finished"), tab="Cost")
    assert [spec["job"] for spec in asked.asked] == ["models_held"] and "policy" in texts(test)
    assert "Measure 8 algorithms on this machine" in [each.label for each in test.button]


def test_the_table_names_what_is_held_and_marks_the_run_s_own_row():
    row = cost.Row(make(algorithm_key="sft", task_key="sort"), [POLICY])
    found = view.table([row], own="SFT")
    assert 'class="rl-own"' in found and "policy: 1,000 parameters, 1,000 learnt" in found
    assert "4.0 kB" in found and "12.0 kB" in found and "64 sequences" in found
