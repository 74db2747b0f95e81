"""A pretrained model's defaults on the page: said with their source, and taken on where nothing was set."""

from app import algorithms
from app.draft import defaults
from app.training.more_knobs import NO_EFFECT
from tests.app.seeding import ran, unfolded

MODEL = "org/model"  # a hub id: nothing is fetched before a run
LOOKED_AT = ("learning_rate", "beta", "clip_low", "prompts_per_step", "schedule")
PLACE = algorithms.place("grpo", "", "sort")


def values(test) -> dict:
    return test.session_state["draft:new-llm"]["knobs"][PLACE]


def choose(test, model: str):
    """What the page does with a name that is typed, which an AppTest cannot."""
    test.session_state["draft:new-llm"]["model"] = model
    return ran(test)


def words(test) -> str:
    return " ".join(each.value for each in (*test.caption, *test.markdown, *test.html))


def steps(test) -> int:
    return next(each for each in test.number_input if each.label == "Steps").value


def test_a_pretrained_model_has_its_defaults_and_each_says_where_it_is_from(page):
    test = page("llm", model=MODEL)
    assert (values(test)["learning_rate"], values(test)["beta"], values(test)["prompts_per_step"], steps(test)) == (
        1e-6, 0.0, 4, 100)
    said = words(test)
    assert "Default 1e-06: TRL 1.16's GRPOConfig." in said and "Default 0: TRL 1.16's GRPOConfig" in said
    assert "Nearest" not in said, "its defaults make no mix"
    assert test.query_params == {"model": [MODEL]} or dict(test.query_params) == {"model": MODEL}
    slider = next(each for each in test.select_slider if each.label.startswith("Learning rate"))
    assert slider.value == 1e-6
    assert "TRL" not in words(page("llm")), "the lab's own models have the row's"


def test_another_model_takes_the_knobs_along_that_nobody_set(page):
    test = page("llm", clip_low="0.1", prompts_per_step="16")
    assert values(test)["learning_rate"] == 7e-4 and steps(test) == 200
    choose(test, MODEL)
    assert {key: values(test)[key] for key in LOOKED_AT} == {
        "learning_rate": 1e-6, "beta": 0.0, "clip_low": 0.1, "prompts_per_step": 16, "schedule": "linear"}
    assert steps(test) == 100
    values(test)["learning_rate"] = 3e-6
    choose(test, "small")
    assert {key: values(test)[key] for key in LOOKED_AT} == {
        "learning_rate": 3e-6, "beta": 0.04, "clip_low": 0.1, "prompts_per_step": 16, "schedule": "constant"}


def test_lora_switched_on_takes_its_rate_along(page):
    test = page("llm", model=MODEL)
    values(test)["lora_rank"] = 8
    ran(test)
    assert values(test)["learning_rate"] == 1e-5 and "10 × TRL 1.16's GRPOConfig" in words(test)
    values(test)["lora_rank"] = 0
    ran(test)
    assert values(test)["learning_rate"] == 1e-6


def test_a_link_says_what_is_not_a_default_of_its_model(page):
    test = page("llm", model=MODEL, learning_rate="0.0007", lora_rank="8")
    assert values(test)["learning_rate"] == 7e-4 and values(test)["beta"] == 0.0
    assert test.query_params["learning_rate"] in ("0.0007", ["0.0007"])
    assert "beta" not in test.query_params


def test_a_run_is_started_with_the_values_that_are_shown(page, lab):
    test = page("llm", model=MODEL, lora_rank="8")
    next(each for each in test.button if each.label == "Run").click()
    ran(test)
    (run,) = lab.store.runs()
    assert (run.spec.knobs["learning_rate"], run.spec.knobs["schedule"], run.spec.steps) == (1e-5, "linear", 100)


def test_a_default_that_follows_from_another_knob_follows_it(page, tmp_path, monkeypatch):
    path = tmp_path / "sums.jsonl"
    path.write_text('{"prompt": "1+1=", "answer": "2"}\n')
    monkeypatch.setattr("app.draft._of_url", lambda kind: {
        **defaults(kind), "task": "prompts", "model": MODEL, "steps": {}, "knobs": {},
        "data": {"prompts": str(path)}})
    test = page("llm")
    kept = test.session_state["draft:new-llm"]["knobs"][algorithms.place("grpo", "", "prompts")]
    assert (kept["max_new_tokens"], kept["overlong_buffer"]) == (256, 51)
    kept["max_new_tokens"] = 8
    unfolded(test, "reward", NO_EFFECT)
    assert kept["overlong_buffer"] == 1 and "Default 51" not in words(test)
    assert "Default 1: a fifth of the length limit" in words(test)
    kept["overlong_buffer"] = 4
    kept["max_new_tokens"] = 100
    ran(test)
    assert kept["overlong_buffer"] == 4, "it was chosen"
