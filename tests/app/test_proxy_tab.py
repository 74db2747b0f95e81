"""Proxy and gold: the course of a run, its peak and its words by hand, the figures, and what the buttons open."""

import pytest

from app.llm import chain, proxy, proxy_figures, proxy_tab
from app.training import forking
from app.training.feed import Feed, headline, panels
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.rows import Step
from tests.app.seeding import link
from tests.app.test_rail import trained
from tests.words import says


def step(number, reward=1.0, gold=0.5, k1=0.1, length=10.0):
    return Step(number, 0, 0, 0.1 * number, {"reward": reward, "reward/gold": gold, "kl/k1": k1, "kl": k1,
                                             "completions/mean_length": length, "exact_match": 0.1})


def hill(count=40):
    """Gold rises until step 20 and falls from there; the proxy rises all the way."""
    return [step(at, 0.1 * at, (20 - abs(20 - at)) / 20, 0.01 * at) for at in range(1, count + 1)]


def test_the_kl_is_that_of_a_whole_completion():
    (point,) = proxy.course([step(3, k1=0.4), Step(4, 0, 0, 1.0, {"reward": 1.0})])
    assert (point.kl, point.distance) == (4.0, 2.0)
    assert proxy.course([step(1, k1=-1e-9)])[0].kl == 0, "an estimate below 0"


def test_smoothing_keeps_the_ends_and_lines():
    points = proxy.course(hill())
    means = proxy.smoothed(points)
    assert (means[0], means[-1]) == (points[0], points[-1])
    assert means[9].proxy == pytest.approx(points[9].proxy)
    assert means[19].gold == pytest.approx(1 - (2 * (1 + 2 + 3 + 4) / 9) / 20)


def test_the_peak_is_found_and_said():
    means = proxy.smoothed(proxy.course(hill()))
    assert proxy.peak(means).step == 20 and proxy.exploits(means)
    assert says(proxy.words(means), "Over-optimisation", "gold", "0.89 at step 20", "2.0 nats",
                "proxy rose 2.00 → 4.00", "gold fell to 0")
    rising = proxy.smoothed(proxy.course(hill(20)))
    assert not proxy.exploits(rising) and proxy.words(rising).startswith("Proxy 0.10 → 2.00, gold 0.05 → 1.00.")


def names(figure):
    return [each.text for each in figure.layout.annotations]


def test_both_are_drawn_over_the_distance_with_the_step_shown_and_the_peak_of_gold():
    points = proxy.course(hill())
    figure = proxy_figures.over_distance(points, proxy.smoothed(points), 10, True, "light")
    assert names(figure) == ["<b>proxy</b>", "<b>gold</b>", "gold peak: step 20, KL 2.0 nats"]
    proxy_here, gold_here = figure.data[-2:]
    assert proxy_here.x == (pytest.approx(1.0),) and proxy_here.y == (pytest.approx(1.0),) and gold_here.yaxis == "y2"
    assert figure.layout.yaxis2.title.text == "gold reward"
    together = proxy_figures.over_steps(points, proxy.smoothed(points), None, False, "dark")
    assert {trace.yaxis for trace in together.data} == {"y"}
    assert [shape.x0 for shape in together.layout.shapes] == [20], "the peak alone"
    assert len(proxy_figures.over_steps(points, proxy.smoothed(points), 7, True, "dark").layout.shapes) == 2


def test_the_numbers_of_a_proxy_say_so():
    feed = Feed(make(algorithm_key="grpo", task_key="sort", knobs={"reward_source": "order_only"}))
    feed.take(hill(), [])
    assert [metric.label for metric in headline(feed, 3)] == ["Proxy reward", "Gold reward", "KL to the reference"]
    first = panels(feed.spec, [feed], ended=True)[0]
    assert first["title"] == "Proxy reward" and [each["short"] for each in first["metrics"]] == ["proxy", "gold"]


@pytest.mark.parametrize(("algorithm", "knobs", "beta", "found"), [
    ("grpo", {"beta": 0.0}, 0.0, ("beta", 0.2)), ("grpo", {"beta": 0.2}, 0.2, ("beta", 0.6)),
    ("grpo", {"kl_placement": "off"}, 0.2, ("kl_placement", "loss")), ("gspo", {"beta": 0.0}, 0.0, None),
    ("gspo", {"kl_placement": "loss"}, 0.0, ("beta", 0.05))])
def test_a_stronger_kl_is_that_of_the_task_or_three_times_as_strong(algorithm, knobs, beta, found):
    """Where placement and β are both off there is none: one knob alone would do nothing."""
    spec = make(algorithm_key=algorithm, task_key="sort" if algorithm == "gspo" else "reviews", knobs=knobs)
    assert proxy_tab.stronger(spec, beta) == found


def test_the_buttons_fork_from_the_checkpoint_nearest_to_the_peak(page, lab):
    assert proxy_tab.nearest([0, 18, 22], 20) == 18
    spec = make(algorithm_key="grpo", task_key="sort", knobs={"reward_source": "order_only"}, steps=40)
    run_id = lab.store.create(spec, mine=True)
    lab.store.set_state(run_id, "running")
    for each in hill():
        lab.store.append(run_id, Record(each.step, 0, each.metrics), each.seconds)
    for at in (0, 18, 40):
        (run_folder(run_id) / "checkpoints" / f"step-{at:06d}" / "policy").mkdir(parents=True)
    lab.store.set_state(run_id, "finished")
    test = page("llm", run=run_id)
    assert test.tabs[0].label == "Proxy and gold"
    assert test.button("cure:reward").label == "Fork with the verifier"
    test.button("cure:stop").click().run()
    wish = test.session_state[forking.OPEN]
    assert (wish.before, wish.knob, wish.value) == (19, "stop_gold_fall", 0.05)
    assert [button.label for button in test.button if "Fork from step" in button.label] == ["Fork from step 18"]
    assert not test.exception


@pytest.mark.long
def test_an_ensemble_needs_two_reward_models_and_is_forked_with_the_lowest_score(page, lab):
    one = trained(lab.store, make(algorithm_key="reward_model", task_key="reviews", steps=5))
    run = trained(lab.store, chain.rl_spec(one, "grpo", str), "running")
    for each in hill()[1:]:
        lab.store.append(run.id, Record(each.step, 0, each.metrics), each.seconds)
    lab.store.set_state(run.id, "finished")
    test = page("llm", run=run.id)
    assert test.button("cure:ensemble").label == "Train a second reward model"
    test.button("cure:ensemble").click().run()
    second = lab.store.run(link(test)["run"])
    assert (second.spec.row.loop, second.spec.seed) == ("reward_model", 1)

    two = trained(lab.store, second.spec)
    test = page("llm", run=run.id)
    assert test.button("cure:ensemble").label == "Lowest of 2 reward models"
    test.button("cure:ensemble").click().run()
    child = lab.store.run(link(test)["run"]).spec
    assert child.parent == (run.id, 1) and child.knobs["reward_source"] == "worst_case_ensemble"
    assert chain.scorers(child) == [one.id, two.id]
