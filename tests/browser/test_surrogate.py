"""The surrogate explorer in a real browser: its formulas against torch and numpy, the page, and the way from a run."""

import json
import re
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Page, expect

from app.surrogate.place import KNOBS, SURROGATES
from labcore.maths import surrogates
from labcore.maths.kl import k3
from labcore.runs.files.paths import run_folder
from labcore.runs.store.store import Store
from tests.app.seeding import samples, seed
from tests.browser.conftest import Server
from tests.browser.hand import grabbed
from tests.browser.test_llm_lab import fits

SLOW = 60_000  # ms: a busy machine is no reason to fail
COMPONENTS = Path(__file__).parents[2] / "app" / "components"
SCRIPTS = ["foundations/grab.js", "foundations/distribution.js", "surrogate_explorer/surrogate_maths.js",
           "surrogate_explorer/surrogate_policy.js",
           *(f"surrogate_explorer/{path.name}" for path in (COMPONENTS / "surrogate_explorer").glob("twin_*.js"))]
# No ratio of the grid is a bound of one of these, where the gradient has no single value.
SETTINGS = [{"beta": 0.5}, {"beta": 2.0, "clip_low": 0.33, "clip_high": 0.28, "dual_clip": 1.7, "ratio_cap": 1.3,
                            "gate_positive": 3.0, "gate_negative": 0.4, "gamma_rate_positive": 1.5},
            {"clip_low": 0.03, "clip_high": 0.04, "clip_delta": 2.2, "dual_clip": 0.0, "gamma_power_negative": 0.7},
            {"clip_delta": 1.11, "dual_clip": 2.6}, {"clip_low": 1.0, "clip_high": 5.0, "dual_clip": 1.23}]
RATIOS = [0.013, 0.31, 0.65, 0.77, 0.84, 0.95, 0.999, 1.0, 1.001, 1.035, 1.15, 1.25, 1.45, 1.9, 2.3, 2.9, 3.4, 7.1]
ADVANTAGES = [-2.5, -1.0, -0.3, 0.0, 0.4, 1.0, 3.0]


def evaluated(page: Page, body: str, given: object) -> object:
    """What `body`, a JavaScript function's body over `given`, returns with the explorer's maths before it."""
    code = "\n".join((COMPONENTS / name).read_text("utf-8") for name in SCRIPTS)
    return page.evaluate("([code, given]) => new Function('given', code)(given)", [f"{code}\n{body}", given])


def of_torch(key: str, knobs: dict[str, float]) -> tuple[torch.Tensor, torch.Tensor]:
    """A surrogate of the lab and its gradient by log π, over ADVANTAGES × RATIOS; each token is a completion."""
    advantages = torch.tensor(ADVANTAGES, dtype=torch.float64).repeat_interleave(len(RATIOS))[:, None]
    old = torch.full_like(advantages, -1.0)
    ratios = torch.tensor(RATIOS, dtype=torch.float64).repeat(len(ADVANTAGES))[:, None]
    logprobs = (old + ratios.log()).requires_grad_()
    ratio = (logprobs - old).exp()
    given = {"ratio": ratio, "advantages": advantages, "logprobs": logprobs, **knobs,
             "completion_mask": torch.ones_like(advantages, dtype=torch.bool), "kl": k3(old, logprobs)}
    function = getattr(surrogates, {"kl_penalised": "kl_penalty"}.get(key, key))
    names = [name for name, each in signature(function).parameters.items()
             if name in given or each.default is each.empty]
    found = function(**{name: given[name] for name in names})
    gradient, = torch.autograd.grad(found.sum(), logprobs)
    if "logprobs" in names:  # a weight of log π: the explorer draws the weight times A
        found = found / logprobs
    return found.detach().flatten(), gradient.flatten()


def test_the_formulas_and_their_gradients_are_those_of_the_lab(page: Page) -> None:
    settings = [{**{key: float(knob.default) for key, knob in KNOBS.items()}, **each} for each in SETTINGS]
    found = evaluated(page, """const { settings, ratios, advantages } = given;
        return settings.map((knobs) => Object.fromEntries(Object.entries(SURROGATES).map(([key, { of, slope }]) => [key,
            [of, slope].map((f) => advantages.flatMap((a) => ratios.map((ratio) => f(ratio, a, knobs))))])));""",
                      {"settings": settings, "ratios": RATIOS, "advantages": ADVANTAGES})
    cut = 0
    for knobs, by_key in zip(settings, found, strict=True):
        assert set(by_key) == set(SURROGATES)
        for key, (values, slopes) in by_key.items():
            expected, gradient = of_torch(key, knobs)
            assert values == pytest.approx(expected.tolist(), rel=1e-9, abs=1e-12), key
            assert slopes == pytest.approx(gradient.tolist(), rel=1e-9, abs=1e-12), key
            cut += int((gradient == 0).sum())
    assert cut > 300  # the grid meets every side that is cut off


def softmax(theta: np.ndarray) -> np.ndarray:
    raised = np.exp(theta - theta.max())
    return raised / raised.sum()


def test_the_small_policy_is_exact(page: Page) -> None:
    rewards, pair, old, delta = np.array([0.8, 0.5, 0.2]), 0.7, np.array([0.3, 0.2, 0.5]), 0.04
    world = {"rewards": rewards.tolist(), "pair": pair, "old": old.tolist()}
    knobs = {"clip_low": 0.2, "clip_high": 0.2, "beta": 0.5}
    found = evaluated(page, """const { world, knobs, delta, theta } = given, policy = softmax(theta);
        const { quadratic, step } = trust(world, delta), keys = ["cpi", "clip", "kl_penalised"];
        const of3 = (of) => Object.fromEntries(keys.map((key) => [key, of(key)]));
        return { value: valueOf(world, policy), start: valueOf(world, world.old), kl: klOf(world.old, policy),
            gain: of3((key) => gainOf(key, world, policy, knobs)),
            gradient: of3((key) => gradientOf(key, world, policy, knobs)),
            plain: gradientOf("cpi", world, world.old, knobs), quadratic, step,
            ascent: ascend("clip", world, knobs, { rate: 1.5, epochs: 4 }).at(-1), best: best(world),
            line: lineOf(world, theta, knobs, ["clip"], [0, 1]) };""",
                      {"world": world, "knobs": knobs, "delta": delta, "theta": [0.4, -1.1, -0.2]})
    policy = softmax(np.array([0.4, -1.1, -0.2]))

    # Every completion by itself: its probability, reward, and the two tokens' advantages under π_old.
    def surrogate(p: np.ndarray, of) -> float:
        reward = (rewards[:, None] + rewards) / 2 + pair * (1 - np.eye(3))
        first = reward @ old - old @ reward @ old
        second = reward - (reward @ old)[:, None]
        return sum(old[a] * old[b] * (of(p[a] / old[a], first[a]) + of(p[b] / old[b], second[a, b]))
                   for a in range(3) for b in range(3))

    def value(p: np.ndarray) -> float:
        return sum(p[a] * p[b] * ((rewards[a] + rewards[b]) / 2 + pair * (a != b)) for a in range(3) for b in range(3))

    def slope(of, theta: np.ndarray) -> np.ndarray:
        return np.array([(of(softmax(theta + d)) - of(softmax(theta - d))) / 2e-6 for d in 1e-6 * np.eye(3)])

    terms = {"cpi": lambda r, a: r * a, "clip": lambda r, a: min(r * a, np.clip(r, 0.8, 1.2) * a),
             "kl_penalised": lambda r, a: r * a - 0.5 * (r - 1 - np.log(r))}
    close = pytest.approx
    kl = old @ np.log(old / policy)
    assert found["kl"] == close(kl) and found["value"] == close(value(policy)) and found["start"] == close(value(old))
    for key, of in terms.items():
        gain = surrogate(policy, of) - surrogate(old, of)
        assert found["gain"][key] == close(gain, abs=1e-12)
        assert found["gradient"][key] == close(slope(lambda p, of=of: surrogate(p, of), np.log(policy)), abs=1e-6)
    assert found["gain"]["kl_penalised"] == close(found["gain"]["cpi"] - 0.5 * 2 * kl)  # both tokens' KL
    assert found["plain"] == close(slope(value, np.log(old)), abs=1e-7)  # L^CPI touches J at π_old
    assert abs(found["gain"]["cpi"] - (value(policy) - value(old))) > 0.01  # and leaves it further off
    assert found["line"]["value"] == close([0, value(policy) - value(old)], abs=1e-12)

    # TRPO: Δ solves max gᵀΔ with ½ΔᵀFΔ = δ; softmax does not see a constant added to θ.
    fisher, gradient = np.diag(old) - np.outer(old, old), np.array(found["plain"])
    natural = np.linalg.pinv(fisher) @ gradient
    step = natural * np.sqrt(2 * delta / (gradient @ natural))
    quadratic = np.array(found["quadratic"])
    assert quadratic - quadratic.mean() == close(step - step.mean(), abs=1e-6)
    moved = softmax(np.log(old) + np.array(found["step"]))
    assert old @ np.log(old / moved) == close(delta, rel=1e-9)
    assert np.cross(quadratic, found["step"]) == close(np.zeros(3), abs=1e-9)

    theta = np.log(old)
    for _ in range(4):
        theta = theta + 1.5 * slope(lambda p: surrogate(p, terms["clip"]), theta)
    assert softmax(np.array(found["ascent"])) == close(softmax(theta), abs=1e-5)
    grid = [np.array([a, b, 60 - a - b]) / 60 for a in range(61) for b in range(61 - a)]
    assert value(np.array(found["best"])) >= max(map(value, grid)) - 1e-12


@pytest.fixture
def run(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A finished run in the server's own store, whose tokens with A > 0 are all cut off."""
    monkeypatch.setenv("RL_LAB_HOME", str(server.home))
    run_id = seed(Store(), "finished")
    (run_folder(run_id) / "samples" / "step-000005.json").write_text(json.dumps(samples(1.3)))
    return run_id


@pytest.mark.long
def test_a_runs_tokens_follow_the_hand_and_what_is_grabbed_is_in_the_link(page: Page, server: Server,
                                                                          run: str) -> None:
    page.goto(f"{server.url}/surrogate?run={run}&at=6")  # as the run's tab Surrogate has it
    counted = page.locator(".rl-su-counted")
    expect(counted).to_contain_text("18 tokens of step 5", timeout=SLOW)
    expect(counted).to_contain_text("8 (44.4 %) are cut off")
    beta = page.get_by_role("slider", name="β of the KL penalty")
    expect(beta).to_be_hidden()  # only what is drawn has its sliders
    page.get_by_role("group", name="Add").get_by_role("button", name="KL penalty").click()
    expect(beta).to_have_attribute("aria-valuetext", "0.04")
    expect(page.locator(".rl-su-claim p")).to_contain_text("A KL penalty prices")
    page.get_by_role("button", name="Remove KL penalty").click()
    expect(beta).to_be_hidden()
    positive, negative = page.locator(".rl-su-panel").all()
    expect(positive.locator(".rl-su-open")).to_have_count(2)  # value and gradient
    expect(negative.locator(".rl-su-open")).to_have_count(0)

    bound = positive.locator("[data-hand=clip_high] .rl-f-hit")
    box = bound.bounding_box()
    x, y = box["width"] / 2, box["height"] / 2
    with grabbed(bound, x, y) as move:
        for share, cut in ((60, "0 (0.0 %)"), (20, "8 (44.4 %)")) * 2:
            move(x + share, y)
            expect(counted).to_contain_text(cut, timeout=SLOW)
        move(x + 150, y)
        expect(counted).to_contain_text("0 (0.0 %) are cut off")
        assert "clip_high" not in page.url  # the server hears of it when the hand rests
    page.wait_for_url(re.compile(r"clip_high=0\.[3-9]"), timeout=SLOW)


@pytest.mark.long
def test_keys_move_what_can_be_grabbed_and_the_link_opens_it_again(page: Page, server: Server, run: str) -> None:
    fits(page, f"{server.url}/surrogate?run={run}&at=6&clip_high=0.37", ".rl-su-under .rl-su-table")
    words, counted = page.locator(".rl-su-said"), page.locator(".rl-su-counted")
    expect(counted).to_contain_text("0 (0.0 %) are cut off", timeout=SLOW)
    ratio = page.get_by_role("slider", name="Ratio ρ, A > 0")
    ratio.focus()
    ratio.press("Home")
    expect(words.nth(0)).to_contain_text("below 1 − εlow")
    expect(page.locator(".rl-f-live")).to_contain_text("below 1 − ε_low", timeout=SLOW)
    page.wait_for_url(re.compile("rho=0"), timeout=SLOW)
    policy = page.get_by_role("slider", name=re.compile("^Old policy"))
    policy.focus()
    policy.press("ArrowUp")
    page.wait_for_url(re.compile("old=0.288%2C0.192%2C0.52"), timeout=SLOW)
    page.reload()
    expect(policy).to_have_attribute("aria-valuetext", "A 0.288, B 0.192, C 0.520", timeout=SLOW)
    page.get_by_role("button", name="Start again").click()
    page.wait_for_url(re.compile(rf"surrogate\?run={run}&at=6$"), timeout=SLOW)
    expect(counted).to_contain_text("8 (44.4 %) are cut off")
