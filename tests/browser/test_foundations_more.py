"""The later half of Foundations: its numbers against numpy's closed forms and enumerations, and its pictures."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import ROOT, Server
from tests.browser.hand import grabbed

SLOW = 60_000  # ms: a busy machine is no reason to fail
PICTURES = ROOT / "app" / "components" / "foundations"
SHARED = ("random.js", "distribution.js")


def computed(page: Page, name: str, body: str, **given: Any) -> Any:
    """What `body`, an arrow function's, returns of the `given`, with a picture's maths in scope."""
    scripts = [PICTURES / each for each in SHARED] + [PICTURES / name / f"{name}_maths.js"]
    source = "\n".join(Path(each).read_text("utf-8") for each in scripts)
    inner = f"({{ {', '.join(given)} }}) => {{ {body} }}"
    return page.evaluate(f"() => {{ {source}\nreturn ({inner})({json.dumps(given)}); }}")


def score(pi: np.ndarray, action: int) -> np.ndarray:
    return np.eye(len(pi))[action] - pi


def near(value: Any, rel: float = 1e-9, to: float = 1e-12) -> Any:
    return pytest.approx(np.asarray(value).tolist(), rel=rel, abs=to)


def test_variance_reduction(page: Page) -> None:
    heights, u = [0.4, -0.3, 2.1], np.random.default_rng(0).random(10)
    pi, rewards, size = np.array([0.5, 0.2, 0.3]), np.array([1.0, -0.5, 2.0]), 3
    found = computed(page, "variance", """
        const curve = curveOf(heights), moments = {};
        for (const kind of BASELINES) moments[kind] = batchMoments(pi, rewards, size, kind);
        return { truth: curveTruth(curve), one: curveEstimates(curve, u),
          at: [0, 0.5, 1].map((x) => heightAt(curve, x)),
          draws: Object.fromEntries(Object.entries(curveDraws(curve, 8, 4000, randomOf(3)))
            .map(([name, each]) => [name, [meanOf(each), varianceOf(each)]])),
          moments, bandit: banditTruth(pi, rewards),
          constant: [-1, 0, 0.7].map((b) => constantVariance(pi, rewards, b, size)),
          estimates: batchEstimates(pi, rewards, size, 4000, randomOf(1)) };
    """, heights=heights, u=u.tolist(), pi=pi.tolist(), rewards=rewards.tolist(), size=size)

    fit = np.polyfit([0, 0.5, 1], heights, 2)
    assert found["at"] == near(heights)
    grid = (np.arange(20_000) + 0.5) / 20_000
    f, mirror = np.polyval(fit, grid), np.polyval(fit, 1 - grid)
    variance, rho = f.var(), np.corrcoef(f, grid)[0, 1]
    truth = found["truth"]
    assert [truth["mean"], truth["variance"]] == near([f.mean(), variance], 1e-6)
    assert truth["coefficient"] == near(np.cov(f, grid)[0, 1] / grid.var(), 1e-3)
    assert truth["ratios"] == {"plain": 1, "control": near(1 - rho**2, 1e-5),
                               "antithetic": near(2 * ((f + mirror) / 2).var() / variance, 1e-5)}
    line = np.polyfit(u, np.polyval(fit, u), 1)  # a fitted control variate is the regression line's height at E u
    half = np.concatenate([u[:5], 1 - u[:5]])
    assert found["one"] == near_all({"plain": np.polyval(fit, u).mean(), "control": np.polyval(line, 0.5),
                                     "antithetic": np.polyval(fit, half).mean(), "fitted": line[0]})
    for name, ratio in (("plain", 1.0), ("antithetic", truth["ratios"]["antithetic"])):
        assert found["draws"][name][1] == pytest.approx(ratio * variance / 8, rel=0.1), "4,000 draws: ±2.2 %"
        assert found["draws"][name][0] == pytest.approx(truth["mean"], abs=5 * np.sqrt(ratio * variance / 32_000))

    value, norms = pi @ rewards, np.array([score(pi, a) @ score(pi, a) for a in range(3)])
    best = (pi * norms) @ rewards / (pi * norms).sum()
    assert found["bandit"] == near_all({"value": value, "gradient": pi * (rewards - value), "best": best})
    for kind, moments in found["moments"].items():
        mean, spread = enumerated(pi, rewards, size, kind, best)
        assert moments["mean"] == near(mean, to=1e-9) and moments["variance"] == near(spread)
        assert moments["scale"] == near((size - 1) / size if kind == "mean" else 1.0)
        assert moments["bias"] == near(np.linalg.norm(mean - pi * (rewards - value)), to=1e-9)
        drawn = found["estimates"][kind]
        assert drawn["variance"] == pytest.approx(spread, rel=0.12)
        assert drawn["mean"] == pytest.approx(list(mean), abs=5 * np.sqrt(spread / 4_000))
    for b, variance in zip((-1, 0, 0.7), found["constant"], strict=True):
        assert variance == near(enumerated(pi, rewards, size, b, best)[1])


def near_all(values: dict[str, Any]) -> dict[str, Any]:
    return {key: near(value) for key, value in values.items()}


def enumerated(pi: np.ndarray, rewards: np.ndarray, size: int, kind: Any, best: float) -> tuple[np.ndarray, float]:
    """Mean and summed variance of a group's gradient over every sequence of actions, one term after the other."""
    mean, second = np.zeros(len(pi)), 0.0
    for actions in itertools.product(range(len(pi)), repeat=size):
        earned = rewards[list(actions)]
        baselines = {"none": np.zeros(size), "mean": np.full(size, earned.mean()), "optimal": np.full(size, best),
                     "loo": np.array([np.delete(earned, i).mean() for i in range(size)])}.get(kind, np.full(size, kind))
        one = np.mean([(r - b) * score(pi, a) for a, r, b in zip(actions, earned, baselines, strict=True)], axis=0)
        mean += pi[list(actions)].prod() * one
        second += pi[list(actions)].prod() * one @ one
    return mean, second - mean @ mean


def test_importance_sampling(page: Page) -> None:
    pi, old, ref = (np.array(each) for each in ([0.1, 0.55, 0.35], [0.3, 0.5, 0.2], [0.2, 0.2, 0.6]))
    rewards, epsilon = np.array([-0.5, 0.2, 1.0]), 0.2
    found = computed(page, "importance", """
        const uniform = randomOf(2), drawn = weightDraws(1, 0.8, 2, 50, 2000, () => normalOf(uniform));
        return { pairs: [[1, 0.8], [-0.5, 1.2]].map(([m, s]) => ({
            truth: weightTruth(m, s), clipped: clippedTruth(m, s, 2), free: clippedTruth(m, s, 1e9) })),
          endless: String(weightTruth(0.5, 1.5).variance),
          kish: [kish([1, 1, 1, 1]), kish([0, 5, 0]), kish([1, 3]), kish([])],
          draws: [drawn.plain, drawn.clipped].map((each) => [total(each) / 2000,
            total(each.map((one) => one ** 2)) / 2000]),
          curves: [100, 1000].map((n) => errorCurve(1, 0.8, n, 0.5, 100)),
          ratio: ratioTruth(pi, old, ref, rewards, epsilon) };
    """, pi=pi.tolist(), old=old.tolist(), ref=ref.tolist(), rewards=rewards.tolist(), epsilon=epsilon)

    x = np.linspace(-15, 15, 60_001)
    q = np.exp(-x**2 / 2) / np.sqrt(2 * np.pi)
    for (m, s), pair in zip([(1, 0.8), (-0.5, 1.2)], found["pairs"], strict=True):
        weight = np.exp(-((x - m) / s) ** 2 / 2) / (s * np.sqrt(2 * np.pi)) / q
        second, terms = np.trapezoid(q * weight**2, x), np.trapezoid(q * (weight * x) ** 2, x)
        assert pair["truth"] == {"second": near(second, 1e-6), "share": near(1 / second, 1e-6),
                                 "variance": near(terms - m**2, 1e-5)}
        bounded = np.minimum(weight, 2) * x
        mean = np.trapezoid(q * bounded, x)
        assert pair["clipped"]["mean"] == pytest.approx(mean, abs=1e-5)
        assert pair["clipped"]["bias"] == pytest.approx(mean - m, abs=1e-5)
        assert pair["clipped"]["variance"] == pytest.approx(np.trapezoid(q * bounded**2, x) - mean**2, abs=1e-4)
        assert pair["free"]["bias"] == pytest.approx(0, abs=1e-6)
    assert found["endless"] == "Infinity"
    assert found["kish"] == [4, 1, pytest.approx(16 / 10), 0]
    first, draws = found["pairs"][0], found["draws"]
    assert draws[0][0] == pytest.approx(1, abs=5 * np.sqrt(first["truth"]["variance"] / 100_000))
    assert draws[1][0] == pytest.approx(first["clipped"]["mean"],
                                        abs=5 * np.sqrt(first["clipped"]["variance"] / 100_000))
    assert draws[1][1] - draws[1][0] ** 2 == pytest.approx(first["clipped"]["variance"] / 50, rel=0.15)

    weight = np.exp(x**2 / 2 - ((x - 1) / 0.8) ** 2 / 2) / 0.8
    for curve in found["curves"]:  # the squared bias goes down to the end of the axis
        bounds, bias = np.array([[bound, each["bias"]] for bound, each in curve["rows"]]).T
        assert (np.diff(bounds) > 0).all() and curve["low"] <= bias[bias >= curve["low"]].min() < 1.1 * curve["low"]
        exact = [(np.trapezoid(q * np.minimum(weight, bound) * x, x) - 1) ** 2 for bound in bounds]
        assert bias == pytest.approx(exact, rel=1e-2, abs=1e-6)

    ratio, advantages = pi / old, rewards - old @ rewards
    terms = {"right": ratio * advantages, "none": advantages, "reference": pi / ref * advantages,
             "clipped": np.minimum(ratio * advantages, ratio.clip(1 - epsilon, 1 + epsilon) * advantages)}
    gain = pi @ rewards - old @ rewards
    assert found["ratio"]["gain"] == near(gain) and found["ratio"]["right"]["bias"] == near(0.0)
    assert found["ratio"]["share"] == near(1 / (old @ ratio**2))
    assert found["ratio"]["cut"] == (abs(terms["clipped"] - terms["right"]) > 1e-9).tolist() == [True, False, True]
    for name, each in terms.items():
        mean = old @ each
        assert found["ratio"][name] == {"mean": near(mean), "bias": near(mean - gain),
                                        "deviation": near(np.sqrt(old @ (each - mean) ** 2), to=1e-8)}


def test_decision_process(page: Page) -> None:
    rng = np.random.default_rng(4)
    first, rewards = rng.uniform(0.1, 0.9, 7), np.concatenate([[0], rng.normal(size=14)])
    outcome = np.where(np.arange(15) >= 7, rewards, 0)
    found = computed(page, "decision", """
        const value = treeTruth(first, process).value, exact = value.slice(0, STATES);
        const known = treeTruth(first, outcome).value.slice(0, STATES), same = Array(STATES).fill(known[0]);
        const none = Array(STATES).fill(0);
        return { process: treeTruth(first, process), credit: creditOf(5, process, 0.3, exact, 0.4), walk: walkOf(5),
          same: bothWays(first, outcome, 0, none, 1), constant: bothWays(first, outcome, known[0], same, 1),
          critic: bothWays(first, outcome, known[0], known, 0), blind: bothWays(first, outcome, 0, none, 0.5),
          steps: bothWays(first, process, 0, none, 1) };
    """, first=first.tolist(), process=rewards.tolist(), outcome=outcome.tolist())

    def mean_reward(logits: np.ndarray, paid: np.ndarray) -> float:
        p, total = 1 / (1 + np.exp(-logits)), 0.0
        for tokens in itertools.product((0, 1), repeat=3):
            state, chance, earned = 0, 1.0, 0.0
            for token in tokens:
                chance *= 1 - p[state] if token else p[state]
                state = 2 * state + 1 + token
                earned += paid[state]
            total += chance * earned
        return total

    logits, step = np.log(first / (1 - first)), 1e-5 * np.eye(7)
    for paid, truth in ((rewards, found["process"]), (outcome, found["same"])):
        slopes = [(mean_reward(logits + each, paid) - mean_reward(logits - each, paid)) / 2e-5 for each in step]
        assert truth["value"][0] == near(mean_reward(logits, paid)) and truth["gradient"] == near(slopes, 1e-6, 1e-8)
    assert (found["walk"]["tokens"], found["walk"]["states"]) == ([1, 0, 1], [0, 2, 5])
    value, paid = found["process"]["value"], [rewards[2], rewards[5], rewards[12]]
    deltas = np.array(paid) + np.array([value[2], value[5], 0]) - np.array([value[0], value[2], value[5]])
    assert found["credit"]["steps"] == near([deltas @ [1, 0.4, 0.16], deltas[1:] @ [1, 0.4], deltas[2]])
    assert found["credit"]["bandit"] == near([sum(paid) - 0.3] * 3)
    for name in ("same", "constant"):  # the reward at the end, λ = 1, no baseline of a single token
        assert found[name]["apart"] == near(0.0) and found[name]["steps"] == found[name]["bandit"]
    for name in ("same", "critic", "steps"):
        assert found[name]["steps"]["bias"] == near(0.0) == found[name]["bandit"]["bias"]
    assert found["critic"]["apart"] > 0.01 < found["steps"]["apart"]
    assert found["critic"]["steps"]["variance"] < found["critic"]["bandit"]["variance"]
    assert found["blind"]["steps"]["bias"] > 0.01 and found["blind"]["bandit"]["bias"] == near(0.0)


def test_effective_action_space(page: Page) -> None:
    found = computed(page, "action_space", """
        return { flat: actionSpace([0, 0], 64), zipf: actionSpace([1.5], 40), few: massOfTop([0.6, 0.4]) };""")
    flat, (zipf,) = found["flat"], found["zipf"]["positions"]
    assert flat["positions"][0]["mass"] == near([k / 64 for k in (1, 2, 4, 8, 16)])
    assert (flat["completions"], flat["all"]) == (near(64**2), 64**2)
    p = np.arange(1, 41) ** -1.5 / (np.arange(1, 41) ** -1.5).sum()
    assert zipf["mass"] == near([p[:k].sum() for k in (1, 2, 4, 8, 16)])
    assert zipf["effective"] == near(np.exp(-(p * np.log(p)).sum()))
    assert found["few"] == near([0.6, 1, 1, 1, 1])


@pytest.mark.long
def test_pictures_follow_the_hand_and_the_keys(page: Page, server: Server) -> None:
    """No drag reruns the page; what is seen changes with the hand, and the words for screen readers with it."""
    page.goto(f"{server.url}/foundations?section=variance")
    knob = page.get_by_role("slider", name="Constant baseline b")
    expect(knob).to_be_visible(timeout=SLOW)
    knob.focus()
    before = knob.get_attribute("aria-valuetext")
    page.keyboard.press("ArrowRight")
    expect(knob).not_to_have_attribute("aria-valuetext", before)
    mean, loo = (page.locator(".rl-f-table tr", has_text=words) for words in ("Mean of the group", "Leave one out"))
    expect(mean).to_contain_text("0.750")
    expect(loo).to_contain_text("1.000")
    expect(page.locator(".rl-f-live")).to_contain_text("(G − 1)/G = 0.750", timeout=SLOW)

    page.get_by_role("link", name="Importance sampling").first.click()
    peak = page.get_by_role("slider", name="Mean m of p")
    expect(peak).to_be_visible(timeout=SLOW)
    with grabbed(peak.locator(".rl-f-knob"), 6, 6) as move:
        move(80, 6)
        drawn = page.evaluate("""() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>
            done(document.querySelector('[aria-label^="Mean m of p"]').getAttribute("aria-valuetext")))))""")
    assert float(drawn.split()[1].strip(",")) > 1.5
    expect(page.locator(".rl-f-wrong", has_text="π / πref").first).to_be_visible()

    size = page.locator(".rl-f-numbers > div", has_text="Effective samples").first
    said = page.locator(".rl-f-live").first
    page.get_by_role("button", name="Start again").first.click()
    expect(size).to_contain_text(re.compile(r"large n\d+\.\d of 100"))
    expect(said).to_contain_text("mostly variance: a lower bound gives less variance and more bias")
    page.get_by_role("button", name="Far away").click()  # n / (1 + Var w) is 0.9, and no effective size is below 1
    expect(size).to_contain_text("–n / (1 + Var w) is below 1: n is too small")
    expect(said).to_contain_text("100 samples of q are too few for p: a few weights carry the mean.")
    expect(said).to_contain_text("mostly bias: a higher bound gives less bias and more variance")

    page.get_by_role("link", name="LLM as a decision process").first.click()
    expect(page.get_by_text("Bandit and MDP give the same gradient").first).to_be_visible(timeout=SLOW)
    page.get_by_role("radio", name="Exact V(s)").check()
    expect(page.get_by_text("The two differ for single completions").first).to_be_visible()

    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("link", name="Effective action space").first.click()
    expect(page.get_by_text("For your own checkpoints")).to_be_visible(timeout=SLOW)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
