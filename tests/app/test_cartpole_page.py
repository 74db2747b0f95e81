"""The CartPole page: every method and state, what is refused in words, the tabs."""

import json

import pytest

from app.cartpole import picture, policy_figures
from app.components.world_player import episodes
from app.status import STATES
from app.training.feed import Feed
from labcore.catalog.cartpole import ALGORITHMS, TASKS
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.rows import RESUMABLE, Event
from tests.app.seeding import html, line, ran, surrogate
from tests.every import now
from tests.words import says

PATH = [[0.0, 0.0, 0.01, 0.0], [0.1, 0.0, 0.25, 0.0]]


def seed(store, state="running", algorithm="ppo", message="", **knobs) -> str:
    """A run with six rows, an evaluation at the even ones, single episodes, a knob event and a line."""
    run_id = store.create(make(kind="cartpole", algorithm_key=algorithm, task_key="CartPole-v1", steps=10,
                               knobs=knobs), mine=True)
    store.set_state(run_id, "running")
    for step in range(1, 7):
        metrics = {"episode_return": 10.0 * step, "episodes": 2.0, "updates": 10.0 * step, "kl/step": 0.01}
        samples = {"step": step, "best": {"step": 2, "return": 1.0},
                   "episodes": [{"env_step": 100 * step, "return": 9.0, "length": 9, "truncated": False}] * 2}
        if step % 2 == 0:
            metrics |= {"eval_return": 20.0 - step, "gradient_variance/total_return": 90.0,
                        "gradient_variance/advantage": 3.0}
            shown = {"path": PATH, "rewards": [1.0], "truncated": False}
            samples |= {"evaluation": {"returns": [20.0 - step] * 2, **shown},
                        "scatter": {"values": [1.0, 2.0, 3.0], "returns": [1.5, 2.0, 2.5]},
                        "ratios": {"ratio": [0.9, 1.3], "advantage": [-1.0, 0.5], "cut": ["", "high"]},
                        "surrogate": surrogate()}
        store.append(run_id, Record(step, 0, metrics, 100 * step), 0.5 * step)
        write(run_id, "samples", samples)
    write(run_id, "lines", line())
    store.log(run_id, "knob", {"knob": "learning_rate", "from": 0.002, "to": 0.001, "update": 2,
                               "between": 1, "text": "η 0.002 → 0.001"}, 3)
    if state != "running":
        store.set_state(run_id, state, message)
    return run_id


def write(run_id: str, kind: str, content: dict) -> None:
    folder = run_folder(run_id) / kind
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"step-{content['step']:06d}.json").write_text(json.dumps(content))


def players(test) -> list[dict]:
    """What each mounted player was given."""
    found = []
    for element in test.get("bidi_component"):
        data = json.loads(element.proto.json)[0]
        if "episodes" in data:
            found.append(data)
    return found


def test_run_untouched_is_ppo_on_cartpole(page, lab):
    test = page("cartpole")
    test.button(key="do:Run").click()
    ran(test)
    run, = lab.store.runs()
    assert (run.spec.kind, run.spec.algorithm, run.spec.task) == ("cartpole", "ppo", "CartPole-v1")


def test_a_method_of_a_few_actions_is_not_ready_for_continuous_ones(page):
    test = page("cartpole", task="Pendulum-v1", algorithm="dqn")
    assert says(html(test), "Pendulum-v1", "continuous actions", "needs discrete ones")
    assert test.button(key="do:Run").disabled
    weak = page("cartpole", task="Pendulum-v1", algorithm="reinforce")
    assert "Ready, with warnings.</b> REINFORCE does not learn this world" in html(weak)


def test_the_arguments_of_a_world_are_a_form(page, lab):
    """One at its default is left out; a wrong one is said where the run's state is."""
    test = page("cartpole", task="FrozenLake-v1")
    next(each for each in test.toggle if each.label == "is_slippery").set_value(False)
    ran(test)
    next(each for each in test.text_input if each.label == "map_name").set_value("9x9")
    ran(test)
    assert "FrozenLake-v1 cannot be made with is_slippery=false map_name=9x9" in html(test)
    next(each for each in test.text_input if each.label == "map_name").set_value("8x8")
    ran(test)
    test.button(key="do:Run").click()
    ran(test)
    assert lab.store.runs()[0].spec.knobs["env_args"] == "is_slippery=false map_name=8x8"


def test_the_policy_of_a_continuous_world_is_drawn_on_a_plane_and_over_time(page, lab):
    run_id = lab.store.create(make(kind="cartpole", algorithm_key="ppo", task_key="Pendulum-v1", steps=1), mine=True)
    lab.store.set_state(run_id, "running")
    lab.store.append(run_id, Record(1, 0, {"eval_return": -900.0, "episodes": 0.0}, 100), 0.5)
    grid = [[0.5, -1.0], [1.0, 2.0]]
    drawn = {"names": ["angle", "speed"], "axes": [[-3.0, 3.0], [-8.0, 8.0]], "rest": "Nothing else.", "action": grid,
             "value": grid, "path": [[0.1, 0.2], [9.0, 0.0]], "bounds": [-2.0, 2.0], "actions": 1}
    shown = {"returns": [-900.0], "path": [[1.0, 0.1, 0.2]] * 2, "rewards": [-900.0], "truncated": True,
             "actions": [[0.4]], "stds": [[0.25]]}
    write(run_id, "samples", {"step": 1, "best": {"step": 1, "return": -900.0}, "episodes": [], "evaluation": shown,
                              "map": drawn})
    lab.store.set_state(run_id, "finished")
    captions = said(page("cartpole", run=run_id), "Policy")
    assert says(captions, "dots", "observations", "first evaluation episode") and "Nothing else." in captions
    assert "σ = 0.25" in captions
    figure = policy_figures.action_map(drawn)
    assert (figure.data[0].zmin, figure.data[0].zmax) == (-2, 2)
    assert list(figure.data[1].x) == [0.1]  # the other place lies beyond the plane
    band = policy_figures.actions_figure([[0.4], [0.5]], [[0.25], [0.25]], [-2.0, 2.0]).data[0]
    assert list(band.y) == pytest.approx([0.65, 0.75, 0.25, 0.15])


@pytest.mark.parametrize(("algorithm", "task"), [
    ("ppo", "CartPole-v1"), ("dqn", "FrozenLake-v1"),
    *(pytest.param(key, "CartPole-v1", marks=pytest.mark.long) for key in ALGORITHMS if key != "ppo"),
    *(pytest.param(key, "FrozenLake-v1", marks=pytest.mark.long) for key in ALGORITHMS if key != "dqn")])
def test_each_method_has_a_form_and_a_picture(page, lab, algorithm, task):
    test = page("cartpole", algorithm=algorithm, task=task)
    assert ALGORITHMS[algorithm].summary[:20] in html(test)
    test.button(key="do:Run").click()
    ran(test)
    assert (lab.store.runs()[0].spec.algorithm, lab.store.runs()[0].spec.task) == (algorithm, task)


@pytest.mark.parametrize("task, said", [
    ("NoSuch-v0", "no environment"), ("CartPole-v7", "CartPole-v1"), ("os:Evil-v0", "does not import the module"),
    ("LunarLander-v3", "needs a package")])
def test_a_world_that_cannot_be_used_is_said_and_cannot_be_run(page, task, said):
    test = page("cartpole", task=task)
    assert said in html(test) and said in test.warning[0].value
    assert test.button(key="do:Run").disabled


@pytest.mark.parametrize("task", now((task for task in TASKS if task != "Taxi-v4"),
                                     "Acrobot-v1", "CliffWalking-v1", "Pendulum-v1"))
def test_each_world_of_the_table_can_be_chosen(page, task):
    test = page("cartpole", task=task)
    assert not test.warning and "Ready" in html(test)


@pytest.mark.parametrize("state", now((state for state in STATES if state not in ("queued", "starting")),
                                      "running", "finished"))
def test_each_state_says_what_it_is(page, lab, state):
    test = page("cartpole", run=seed(lab.store, state, message="A sentence about it."))
    assert STATES[state][1] in html(test)
    assert state not in RESUMABLE or "Resume" in [button.label for button in test.button]


@pytest.mark.parametrize("algorithm", now(ALGORITHMS, "ppo"))
def test_tabs(page, lab, algorithm):
    test = page("cartpole", run=seed(lab.store, "finished", algorithm), tab="Surrogate")
    for tab in ("Value", "Variance", "Equation", "Events", "Data", "Export"):
        said(test, tab)


def test_the_player_gets_the_newest_and_the_best(page, lab):
    test = page("cartpole", run=seed(lab.store, "finished"))
    player, = players(test)
    assert [episode["about"] for episode in player["episodes"]] == ["step 6, return 14, mean of 2",
                                                                    "step 2, return 18, mean of 2"]


def test_single_episodes_reach_the_chart(page, lab):
    test = page("cartpole", run=seed(lab.store, "finished"))
    mounted = (json.loads(each.proto.json)[0] for each in test.get("bidi_component"))
    chart, = (data for data in mounted if "panels" in data)
    (run,) = chart["runs"].values()
    assert run["rows"][2][4] == [[300, 9.0], [300, 9.0]]
    assert chart["x"] == "step" and chart["markers"][0]["text"] == "η 0.002 → 0.001"


def test_a_sample_that_is_gone_is_no_fault(page, lab):
    run_id = seed(lab.store, "finished")
    for path in (run_folder(run_id) / "samples").glob("*.json"):
        path.unlink()
    assert not players(page("cartpole", run=run_id))


def test_a_run_of_another_kind_opens_on_its_own_page(page, lab):
    test = page("llm", run=seed(lab.store, "finished"))
    assert players(test)


def said(test, tab: str) -> str:
    """The captions of a tab."""
    test.query_params["tab"] = tab
    ran(test)
    return " ".join(element.value for element in test.caption)


def test_without_a_clip_none_is_drawn(page, lab):
    words = said(page("cartpole", run=seed(lab.store, "finished", objective="kl_penalty")), "Surrogate")
    assert "has no clip" in words and "beyond the clip" not in words and "other objective" in words
    words = said(page("cartpole", run=seed(lab.store, "finished")), "Surrogate")
    assert "1 clipped" in words and "has no clip" not in words


def test_a_batch_is_drawn_with_its_own_clip_and_an_earlier_file_says_so(page, lab):
    run_id = seed(lab.store, "finished", clip_low=0.2, clip_high=0.2, anneal=True)
    samples = json.loads((run_folder(run_id) / "samples" / "step-000006.json").read_text())
    write(run_id, "samples", samples | {"surrogate": surrogate() | {"bounds": [0.95, 1.3]}})
    assert "0.95 to 1.3, annealed" in said(page("cartpole", run=run_id), "Surrogate")
    del samples["surrogate"]
    write(run_id, "samples", samples)
    assert "An earlier version of the lab wrote this file" in said(page("cartpole", run=run_id), "Surrogate")


def test_the_knobs_of_a_step_are_those_that_it_was_made_with():
    """An event of step 3 was logged when two steps were complete: the third is the first with the new value."""
    feed = Feed(make(kind="cartpole", algorithm_key="ppo", task_key="CartPole-v1"))
    moved = {"knob": "objective", "from": "clip", "to": "kl_penalty", "update": 160, "between": 1}
    feed.events = [Event(1, 3, "knob", moved, 0.0)]
    assert [feed.knobs(step)["objective"] for step in (2, 3, None)] == ["clip", "kl_penalty", "kl_penalty"]
    assert feed.history.values_of("objective") == {"clip", "kl_penalty"} and feed.history.values_of("psi") == set()


def test_a_variance_needs_two_environments(page, lab):
    assert "at least two environments" in said(
        page("cartpole", run=seed(lab.store, "finished", "reinforce", environments=1)), "Variance")


def test_reads_of_episodes_are_bounded_and_only_of_files_that_are_there(lab, monkeypatch):
    run_id = seed(lab.store)
    (run_folder(run_id) / "samples" / "step-000005.json").unlink()
    run, asked = lab.store.run(run_id), []
    monkeypatch.setattr(picture, "READS", 3)
    load = picture.files.load
    monkeypatch.setattr(picture.files, "load", lambda *names: asked.append(names[-1]) or load(*names))
    feed = Feed(run.spec)
    feed.take(lab.store.steps_after(run_id, 0), [])
    picture.take_episodes(run, feed)
    assert asked == [1, 3, 6]
    for _ in range(3):
        picture.take_episodes(run, feed)
    assert sorted(asked) == [1, 2, 3, 4, 6] == sorted(feed.dots)
    write(run_id, "samples", {"step": 5, "episodes": []})
    picture.take_episodes(run, feed)
    assert asked[-1] == 5, "what is written later comes later"


def test_a_random_episode_that_is_cut_is_not_out_of_time():
    shown = picture._random_episode("MountainCar-v0")
    assert shown["stopped"] == "the first 200 steps" or shown["truncated"]
    assert episodes.at_random("Acrobot-v1", {"path": [[0.0] * 6] * 2, "rewards": [-1.0], "truncated": True,
                                             "stopped": "the first 200 steps"})["episodes"][0]["ended"] == (
        "the first 200 steps")


def test_the_table_counts_environment_steps(page, lab):
    test = page("cartpole", run=seed(lab.store, "finished"))
    test.query_params["tab"] = "Data"
    ran(test)
    columns = list(test.dataframe[0].value.columns)
    assert "env_steps" in columns and "tokens" not in columns
