"""Compare in a real browser: bands over seeds, hidden lines, the winner by name, and a fork held against its parent."""

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from labcore.runs import sweep
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from tests.analysis.compare import tools
from tests.browser.conftest import Server
from tests.browser.hand import grabbed

SLOW = 60_000  # ms: a busy machine is no reason to fail
# The names of the visible traces of every chart, each once, as Plotly has them.
SHOWN = """() => [...document.querySelectorAll('.rl-compare-chart .rl-plot')].map(plot =>
    [...new Set((plot.data || []).filter(trace => trace.visible).map(trace => trace.name))].sort().join())"""


@pytest.fixture
def store(server: Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("RL_LAB_HOME", str(server.home))
    return Store()


def drawn(page: Page, names: str, charts: int = 2) -> None:
    """Wait until so many charts show just these groups."""
    page.wait_for_function(f"names => ({SHOWN})().filter(shown => shown === names).length >= {charts}", arg=names,
                           timeout=SLOW)


@pytest.mark.long
def test_a_large_sweep_shows_its_pictures_and_its_ranking(page: Page, server: Server, store: Store) -> None:
    spec = make(algorithm_key="grpo", task_key="sort", steps=3)
    axes = {"learning_rate": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2], "beta": [0.0, 0.02, 0.05, 0.1, 0.2]}
    sweep_id = sweep.queue(store, sweep.grid(spec, axes, range(3)), mine=True)
    for run in store.sweep_runs(sweep_id):
        store.set_state(run.id, "running")
        for step in range(1, 4):
            reward = 0.1 * step + 100 * float(run.spec.knobs["learning_rate"]) + 0.01 * run.spec.seed
            store.append(run.id, Record(step, step, {"reward": reward}), 1.0)
        store.set_state(run.id, "finished")
    page.goto(f"{server.url}/compare?sweep={sweep_id}&view=sweep")
    rows = page.locator(".rl-results tbody tr")
    expect(rows).to_have_count(20, timeout=SLOW)
    page.wait_for_function("""() => [...document.querySelectorAll('.rl-figure-chart .js-plotly-plot')].filter(
        plot => plot.querySelector('.scatterlayer path, .heatmaplayer image')).length === 3""", timeout=SLOW)
    expect(page.get_by_role("status").filter(has_text="Of 25 settings the best is β ")).to_be_visible()
    expect(rows.first.locator("th")).to_have_text("1")
    grip = page.locator(".rl-parallel-chart .rl-grip").last  # of the reward: its upper end is a fifth of the rates
    with grabbed(grip, 16, 4) as move:
        move(16, 60, steps=4)
    expect(page.get_by_text("15 of 75 runs chosen.")).to_be_visible(timeout=SLOW)
    expect(rows).to_have_count(5, timeout=SLOW)
    page.get_by_role("button", name="All runs").click()
    expect(rows).to_have_count(20, timeout=SLOW)


def test_seeds_make_a_band_lines_can_be_hidden_and_the_table_names_the_winner(page: Page, server: Server,
                                                                              store: Store) -> None:
    levels = {"grpo": 0.9, "rloo": 0.905, "ppo": 0.5}
    runs = [tools.stored(store, [level * (1 - 0.8 ** step) + 0.02 * seed for step in range(1, 30)], seed=seed,
                         algorithm=key, kl=[0.01 * step for step in range(1, 30)])
            for key, level in levels.items() for seed in range(3)]
    page.goto(f"{server.url}/compare?runs={','.join(runs)}")
    drawn(page, "GRPO,PPO,RLOO")
    areas = page.evaluate("document.querySelector('.rl-plot').data.filter(trace => trace.fill === 'toself').length")
    assert areas == 3
    legend = page.locator(".rl-legend button")
    expect(legend.filter(has_text="PPO")).to_contain_text("3 seeds")
    legend.filter(has_text="PPO").click()
    drawn(page, "GRPO,RLOO")
    legend.filter(has_text="RLOO").dblclick()
    drawn(page, "RLOO")
    legend.filter(has_text="RLOO").dblclick()
    drawn(page, "GRPO,PPO,RLOO")

    shown = page.locator(".rl-card.rl-shown")
    expect(page.locator(".rl-headline")).to_contain_text("per second RLOO is ahead of PPO and ties with GRPO.",
                                                         timeout=SLOW)
    expect(shown).to_contain_text("Per token at 2,900 tokens each")
    page.get_by_text("Equal seconds", exact=True).click()
    expect(shown).to_contain_text("Per second at 29 seconds each", timeout=SLOW)
    page.wait_for_url(re.compile("by=seconds"), timeout=SLOW)
    page.get_by_text("Table", exact=True).click()
    page.wait_for_url(re.compile("view=table"), timeout=SLOW)
    expect(page.locator(".rl-results tbody tr").nth(2)).to_contain_text("RLOO beats it, P 1.00")
    with page.expect_download(timeout=SLOW) as download:
        page.get_by_role("button", name="Table (CSV)").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("group,seeds,runs,states,metric,final,")
    assert [line.split(",")[0] for line in lines[1:]] == ["GRPO", "RLOO", "PPO"]
    page.get_by_role("button", name="Link").click()
    copied = page.get_by_test_id("stCode").inner_text(timeout=SLOW).strip()
    assert parse_qs(urlsplit(copied).query) == parse_qs(urlsplit(page.url).query)


@pytest.mark.long
def test_help_leaves_the_navigation_free_and_escape_closes_what_was_opened(page: Page, server: Server,
                                                                           store: Store) -> None:
    run = tools.stored(store, [0.5] * 3)
    tools.stored(store, [0.5] * 3, seed=1)
    page.goto(f"{server.url}/compare?runs={run}")
    page.get_by_role("button", name=re.compile("other seed")).hover(timeout=SLOW)
    tip = page.get_by_test_id("stTooltipContent")
    expect(tip).to_be_visible(timeout=SLOW)
    page.wait_for_function("""() => document.querySelector('.stTooltipContent').getBoundingClientRect().top >
        document.querySelector('header').getBoundingClientRect().bottom""", timeout=SLOW)
    opened = page.get_by_test_id("stPopoverBody")
    size = page.viewport_size
    assert size
    for width in (*range(1100, 700, -60), 390):
        page.set_viewport_size({"width": width, "height": size["height"]})
        tops = {page.get_by_role("button", name=name).evaluate("each => each.getBoundingClientRect().top")
                for name in ("Charts", "Link")}
        assert len(tops) == 1, f"the buttons wrap together, also at {width} pixels"
    assert page.locator(".st-key-compare_controls .stButtonGroup button").first.evaluate(
        "each => getComputedStyle(each.parentElement).flexWrap") == "wrap", "no view is off a phone's screen"
    page.set_viewport_size(size)
    for name in ("Charts", "Link"):
        page.get_by_test_id("stPopover").get_by_role("button", name=re.compile(name)).click()
        expect(opened).to_be_visible(timeout=SLOW)
        page.keyboard.press("Escape")
        expect(opened).to_have_count(0, timeout=SLOW)

    queued = store.create(store.run(run).spec)
    page.goto(f"{server.url}/compare?runs={queued}")
    expect(page.locator(".rl-compare-chart .rl-empty").first).to_be_visible(timeout=SLOW)
    page.wait_for_function("() => window.Plotly || window.labPlotly", timeout=SLOW)
    page.wait_for_timeout(500)
    expect(page.locator(".rl-compare-chart .ytick")).to_have_count(0)  # no axes of nothing
    store.append(queued, Record(1, 1, {"reward": 0.5}), 1.0)
    expect(page.locator(".rl-compare-chart .ytick")).not_to_have_count(0, timeout=SLOW)


@pytest.mark.long
def test_all_of_a_plane_is_in_sight_and_a_name_leaves_the_ends_of_runs_free(page: Page, server: Server,
                                                                            store: Store) -> None:
    """Seeds end above and below the mean; the first rows of each lie far to the right."""
    runs = [tools.stored(store, [0.1, *[level] * 8], seed=seed, kl=[0.9, *[0.3] * 8])
            for seed, level in enumerate((0.48, 0.5, 0.52))]
    page.goto(f"{server.url}/compare?runs={','.join(runs)}&view=plane")
    page.wait_for_function("() => document.querySelector('.rl-plot')?._fullLayout?.xaxis?.range && "
                           "document.querySelector('.rl-plot .textpoint')", timeout=SLOW)
    axes, found = page.evaluate("""() => { const plot = document.querySelector('.rl-plot');
        return [['xaxis', 'yaxis'].map(axis => plot._fullLayout[axis].range),
                plot.data.map(({ x, y, textposition }) => ({ x, y, side: textposition }))]; }""")
    for axis, (low, high) in zip("xy", axes, strict=True):
        assert all(low < value < high for trace in found for value in trace[axis])
    assert [trace["side"] for trace in found if trace.get("side")] == ["middle right"]


def test_a_fork_grows_from_its_parent_with_the_difference_below(page: Page, server: Server, store: Store) -> None:
    rewards = [0.1 * step for step in range(1, 7)]
    parent = tools.stored(store, rewards)
    child = tools.stored(store, [], parent=(parent, 3), state="running", beta=0.2)
    for step in (4, 5, 6):
        store.append(child, Record(step, 100 * step, {"reward": rewards[step - 1] + 0.05 * (step - 3),
                                                      "updates": float(step)}), float(step))
    page.goto(f"{server.url}/compare?runs={parent},{child}&x=updates")
    page.wait_for_function("() => document.querySelector('.rl-plot')?.data?.some(trace => trace.yaxis === 'y2')",
                           timeout=SLOW)
    traces = page.evaluate("""() => document.querySelector('.rl-plot').data.map(
        ({ name, yaxis, mode, x, y }) => ({ name, strip: yaxis === 'y2', dot: mode === 'markers', x, y }))""")
    strip, = (trace for trace in traces if trace["strip"])
    assert strip["x"] == [3, 4, 5, 6] and strip["y"] == pytest.approx([0, 5, 10, 15])  # percentage points
    fork, = (trace for trace in traces if not trace["strip"] and not trace["dot"] and trace["name"] == strip["name"])
    assert (fork["x"][0], fork["y"][0]) == (3, pytest.approx(30))
    dot, = (trace for trace in traces if trace["dot"])
    assert (dot["x"], dot["y"]) == ([3], [pytest.approx(30)])

    store.append(child, Record(7, 700, {"reward": 0.9, "updates": 7.0}), 7.0)  # it still goes: the page follows
    page.wait_for_function("() => document.querySelector('.rl-plot').data.some(trace => trace.x.at(-1) === 7)",
                           timeout=SLOW)
    store.set_state(child, "finished")
