"""Foundations in a real browser: its arithmetic against numpy, bars under the hand and the keyboard, a phone."""

import json
import re
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import ROOT, Server
from tests.browser.hand import grabbed

SLOW = 60_000
SCRIPTS = ROOT / "app" / "components" / "foundations"
P, Q = np.array([0.4, 0.25, 0.2, 0.1, 0.05]), np.array([0.15, 0.2, 0.25, 0.25, 0.15])
ROUND = {"rel": 1e-9, "abs": 1e-12}


def maths(page: Page, script: str, expression: str, **given: Any) -> Any:
    """What an expression of the pure scripts gives in the browser; `given` are its names, as JSON."""
    source = "\n".join((SCRIPTS / name).read_text("utf-8") for name in ("distribution.js", "random.js", script))
    return page.evaluate(f"({{ {', '.join(given) or 'none'} }}) => {{ {source}\nreturn {expression}; }}",
                         json.loads(json.dumps(given)))


def mulberry32(seed: int, count: int) -> np.ndarray:
    """The generator of the pages, once more."""
    found, mask = [], 2**32 - 1
    for _ in range(count):
        seed = (seed + 0x6D2B79F5) & mask
        t = ((seed ^ (seed >> 15)) * (seed | 1)) & mask
        t ^= (t + (((t ^ (t >> 7)) * (t | 61)) & mask)) & mask
        found.append((t ^ (t >> 14)) / 2**32)
    return np.array(found)


def test_entropy_and_kl_are_those_of_numpy(page: Page) -> None:
    """Also where an outcome never comes, where one is certain, and where all are equal."""
    cases = [P.tolist(), [0.5, 0.5, 0.0], [1.0, 0.0], [0.125] * 8]
    got = maths(page, "entropy/entropy_maths.js", "cases.map((p) => [entropy(p), inBits(entropy(p)), tempered(p, 0.5),"
                " moved(p, 0, 0.25)])", cases=cases)
    for p, (nats, bits, sharper, dragged) in zip(map(np.array, cases), got, strict=True):
        expected = -sum(x * np.log(x) for x in p if x > 0)
        assert nats == pytest.approx(expected, **ROUND) and bits == pytest.approx(expected / np.log(2), **ROUND)
        assert sharper == pytest.approx(p**2 / (p**2).sum(), **ROUND)
        assert dragged[0] == 0.25 and sum(dragged) == pytest.approx(1)
        assert p[0] == 1 or dragged[1:] == pytest.approx(p[1:] * 0.75 / (1 - p[0]), **ROUND)
    assert got[3][0] == pytest.approx(np.log(8)) and got[2][0] == 0
    there, back, same, without, within = maths(page, "kl/kl_maths.js", """[kl(p, q), kl(q, p), kl(p, p),
        kl(p, [0, 0.25, 0.25, 0.25, 0.25]), kl([0, 1], [0.5, 0.5])]""", p=P.tolist(), q=Q.tolist())
    assert there == pytest.approx((P * np.log(P / Q)).sum()) and back == pytest.approx((Q * np.log(Q / P)).sum())
    assert same == 0 and without == np.inf and within == pytest.approx(np.log(2))


def test_one_hump_fitted_to_two_is_the_best_of_all(page: Page) -> None:
    """By brute force over means and widths; the forward fit also has P's mean and deviation."""
    x = np.linspace(-6, 6, 161)
    given = {"weight": 0.6, "means": [-2, 2], "width": 0.7}
    log_p, cover, seek, moments = maths(page, "kl/kl_maths.js", """(() => { const grid = gridOf(GRID),
        p = humps(grid, given), m = momentsOf(grid, p); return [p, fitted(grid, p, true, [m]), fitted(grid, p, false,
        [m, [-2, 0.7], [2, 0.7]]), m]; })()""", given=given)
    p = 0.6 * np.exp(-(x + 2)**2 / 0.98) + 0.4 * np.exp(-(x - 2)**2 / 0.98)
    p /= p.sum()
    assert np.exp(log_p) == pytest.approx(p, abs=1e-12)
    assert moments == pytest.approx([(p * x).sum(), np.sqrt((p * x**2).sum() - (p * x).sum()**2)])
    means, widths = np.meshgrid(np.linspace(-3, 3, 121), np.linspace(0.3, 3, 109), indexing="ij")
    q = np.exp(-(x - means[..., None])**2 / (2 * widths[..., None]**2)) + 1e-300
    q /= q.sum(-1, keepdims=True)
    for fit, table in ((cover, (p * np.log(p / q)).sum(-1)), (seek, (q * np.log(q / p)).sum(-1))):
        best = np.unravel_index(table.argmin(), table.shape)
        assert fit["value"] <= table.min() + 1e-9
        assert (fit["mean"], fit["width"]) == pytest.approx((means[best], widths[best]), abs=0.04)
    assert abs(cover["mean"]) < 1 < 2 < cover["width"] and seek["mean"] < -1.9 and seek["width"] < 0.8


def test_k1_k2_and_k3_and_their_gradients(page: Page) -> None:
    """Values and spreads by enumeration, gradients by small steps of the logits with the samples held fixed."""
    names = ["k1", "k2", "k3", "upside_down"]
    exact, found, gradients, (forward, other) = maths(page, "kl_samples/kl_samples_maths.js", """[
        names.map((name) => exactly(name, p, q, 16)), (() => { const all = estimates(p, q, 16, 10000, 3);
        return names.map((name) => measured(all[name])); })(),
        Object.keys(PULLS).map((name) => [name, gradientOf(name, p, q)]),
        Object.values(exactGradients(p, q))]""", names=names, p=P.tolist(), q=Q.tolist())
    log_r = np.log(Q / P)
    values = [-log_r, log_r**2 / 2, np.exp(log_r) - 1 - log_r, np.exp(-log_r) - 1 + log_r]
    for value, (truth, sampled) in zip(values, zip(exact, found, strict=True), strict=True):
        deviation = np.sqrt((P * value**2).sum() - (P * value).sum()**2) / 4
        assert (truth["mean"], truth["deviation"]) == pytest.approx(((P * value).sum(), deviation))
        assert abs(sampled["mean"] - truth["mean"]) < 5 * deviation / 100
        assert sampled["deviation"] == pytest.approx(deviation, rel=0.04)
    kl = (P * np.log(P / Q)).sum()
    assert exact[0]["mean"] == pytest.approx(kl) and exact[2]["mean"] == pytest.approx(kl)
    assert abs(exact[1]["mean"] - kl) > 0.01 and abs(exact[3]["mean"] - kl) > 0.05, "k2 and the wrong one miss"

    def k3(p: np.ndarray) -> np.ndarray:
        return Q / p - 1 - np.log(Q / p)

    of_p = {"k1": lambda p: (P * np.log(p / Q)).sum(), "k2": lambda p: (P * np.log(p / Q)**2 / 2).sum(),
            "k3": lambda p: (P * k3(p)).sum(), "ratio_k3": lambda p: (P * (p / P) * k3(p)).sum(),
            "upside_down": lambda p: (P * (p / Q - 1 - np.log(p / Q))).sum()}
    got = dict(gradients)
    assert got.keys() == of_p.keys()
    for name, function in of_p.items():
        assert got[name] == pytest.approx(slopes(function), abs=1e-8), name
    assert forward == pytest.approx(slopes(lambda p: (p * np.log(p / Q)).sum()), abs=1e-8)
    assert other == pytest.approx(slopes(lambda p: (Q * np.log(Q / p)).sum()), abs=1e-8)
    assert got["k1"] == pytest.approx(np.zeros(5), abs=1e-12)
    assert got["k2"] == pytest.approx(forward) and got["ratio_k3"] == pytest.approx(forward)
    assert got["k3"] == pytest.approx(other)
    assert not any(np.allclose(got["upside_down"], each, atol=0.02) for each in (forward, other))


def slopes(function, step: float = 1e-5) -> np.ndarray:
    """∂f/∂θ of f(softmax θ) at P, by central differences."""
    def at(shift: np.ndarray) -> float:
        p = P * np.exp(shift)
        return function(p / p.sum())
    return np.array([(at(step * row) - at(-step * row)) / (2 * step) for row in np.eye(len(P))])


def test_running_means_their_intervals_and_the_slope(page: Page) -> None:
    dice, power, table = maths(page, "monte_carlo/monte_carlo_maths.js", """[running(PROBLEMS.die.draw, [1, 10, 50], 7),
        slopeOf([[1, 3], [10, 3 * 10 ** -0.5], [100, 0.3]]), Object.entries(PROBLEMS).map(([name, problem]) =>
        [name, problem.truth, problem.deviation, errors(problem, [16, 400], 300, 1)])]""")
    rolls = 1 + np.floor(6 * mulberry32(7, 50))
    for n, mean, half, deviation in dice:
        assert mean == pytest.approx(rolls[:n].mean())
        if n > 1:
            assert deviation == pytest.approx(rolls[:n].std(ddof=1))
            assert half == pytest.approx(1.959964 * deviation / n**0.5)
    assert dice[0][2] == np.inf and power["slope"] == pytest.approx(-0.5)
    truths = {"die": (3.5, np.sqrt(35 / 12)), "darts": (np.pi, np.sqrt(np.pi * (4 - np.pi))),
              "rare": (0.001, np.sqrt(0.001 * 0.999)), "heavy": (3, np.inf)}
    for name, truth, deviation, rows in table:
        assert (truth, deviation) == pytest.approx(truths[name])
        for n, error, held in rows:
            if name in ("die", "darts"):
                assert error == pytest.approx(deviation / np.sqrt(n), rel=0.15) and held > 0.86
            elif name == "rare":
                assert error == pytest.approx(deviation / np.sqrt(n), rel=0.6) and held < 0.5
    uneven = maths(page, "monte_carlo/monte_carlo_maths.js", """(() => {
        const draw = drawerOf([0.5, 0, 0.3, 0.2], randomOf(1)), counts = [0, 0, 0, 0];
        for (let i = 0; i < 20000; i += 1) counts[draw()] += 1; return counts; })()""")
    assert uneven[1] == 0 and np.abs(np.array(uneven) / 20_000 - [0.5, 0, 0.3, 0.2]).max() < 0.015


def test_bars_follow_the_hand_and_the_keyboard_and_the_server_hears_nothing(page: Page, server: Server) -> None:
    sent: list[int] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda _: sent.append(1)))
    page.goto(f"{server.url}/foundations")
    words = page.locator(".rl-foundation-entropy .rl-f-words")
    expect(words).to_contain_text("1.415 nats", timeout=SLOW)
    bar = page.get_by_role("slider", name="Probability of A")
    before = len(sent)
    with grabbed(bar, 10, 22) as move:
        move(10, -60, steps=4)
        expect(words).not_to_contain_text("1.415 nats")
        move(10, -400)
    expect(words).to_contain_text("A is certain")
    expect(bar).to_have_attribute("aria-valuenow", "1.000")
    for _ in range(2):
        page.keyboard.press("ArrowDown")  # the bar has the focus
    expect(bar).to_have_attribute("aria-valuetext", "0.980")
    expect(page.locator(".rl-f-numbers b").first).to_have_text("0.126")
    expect(page.locator(".rl-f-live")).to_contain_text("0.126 nats")  # what screen readers hear at rest
    assert len(sent) == before, "the server was asked"

    page.get_by_role("link", name="3 KL from samples").click()
    expect(page.locator(".rl-foundation-kl-samples .rl-f-words")).to_contain_text("exact KL is 0.257", timeout=SLOW)
    page.wait_for_url(re.compile("section=kl_samples"), timeout=SLOW)
    expect(page.locator(".rl-f-table")).to_contain_text("estimate from 10,000", timeout=SLOW)
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator(".rl-f-table")).to_be_visible()
    page.wait_for_function("() => document.querySelector('.rl-f-plot svg').clientWidth < 391", timeout=SLOW)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
