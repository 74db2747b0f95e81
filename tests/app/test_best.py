"""Best of n in the Playground: what is asked, the chosen answer, and what stands in its table."""

from app.playground import best
from labcore.catalog.llm.tasks import SORT_SCORER
from labcore.runs.files import checkpoints
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.model_names import PROCESS_WEIGHTS
from tests.app.asking import Answering, trained
from tests.app.seeding import ran
from tests.app.test_playground import by_key, said
from tests.words import says


def answer(text, score, exact, steps=(), truncated=False):
    return {"text": text, "score": score, "exact": exact, "reward": None, "truncated": truncated, "steps": [*steps]}


FOUND = {"prompt": "ba=", "of_steps": True, "answers": [
    answer("b<", 0.9, False, [["b", 0.95, 0.0], ["<", 0.9, None]]), answer("ab", 0.5, True, [["a", 0.5, 1.0]]),
    answer("ab", 0.5, True, [["a", 0.5, 1.0]]), answer("a", 0.1, None, [["a", 0.1, 1.0]], truncated=True)]}


def test_the_page_asks_and_says_whether_the_verifier_agrees(page, lab):
    policy, judge = trained(lab.store), trained(lab.store, "prm")
    (dict(checkpoints.steps(run_folder(judge)))[6] / PROCESS_WEIGHTS).touch()
    trained(lab.store, "prm", task="countdown")
    asked = Answering(lab.launcher, lambda spec: FOUND)
    test = page("playground", runs=policy, view="best", prompt="ba=", answer="ab", ranked="8")
    spec, = asked.asked
    assert spec | {"job": "best_of_n", "model": f"{policy}@6", "scorer": f"{judge}@6", "by": "lowest", "count": 8,
                   "prompt": "ba=", "answer": "ab", "seed": 0} == spec
    assert "The verifier disagrees: it is wrong" in said(test) and "50 % of all 4 are right" in said(test)
    box = by_key(test.selectbox, "playground:scorer")
    assert len(box.options) == 2 and box.options[-1] == "Process reward model that comes with the lab"
    box.set_value(SORT_SCORER)
    ran(test)
    by_key(test.selectbox, "playground:by").set_value("product")
    ran(test)
    assert (asked.asked[-1]["scorer"], asked.asked[-1]["by"]) == (SORT_SCORER, "product")


def test_a_published_model_is_loaded_after_a_click_with_its_steps(page, lab):
    policy = trained(lab.store)
    asked = Answering(lab.launcher, lambda spec: FOUND)
    test = page("playground", runs=policy, view="best", prompt="ba=", answer="ab", scorer="math-ai/prm",
                step_tag="+", label_tokens="1 0")
    assert asked.asked == [] and "Loads math-ai/prm and ranks the answers" in said(test)
    by_key(test.text_input, "playground:step_separator").set_value(";")
    ran(test)
    by_key(test.button, "compute:best").click()
    ran(test)
    spec, = asked.asked
    assert spec | {"scorer": "math-ai/prm", "step_separator": ";", "step_tag": "+", "label_tokens": "1 0"} == spec


def test_without_a_reward_model_the_page_says_how_to_get_one(page, lab):
    test = page("playground", runs=trained(lab.store, task="add"), view="best")
    assert "no reward model for this task yet: train one in the LLM lab" in said(test)
    assert not test.exception


def test_each_text_stands_once_and_is_escaped():
    found = best.table(FOUND, "lowest")
    assert found.count("<tr") == 4 and found.count("rl-won") == 1 and "lowest score" in found
    assert "<code>b<" not in found and "&lt;" in found and "(cut)" in found and ">2</td>" in found
    assert found.index("chosen") < found.index("0.900") < found.index("0.500") < found.index("0.100")


def test_the_sentence_without_a_verifier_judges_nothing():
    unjudged = {"answers": [answer("x", 1.5, None)]}
    said = best.sentence(unjudged, "GRPO")
    assert says(said, "1 answer", "GRPO", "<code>x</code>", "1.5") and not says(said, "correct")
