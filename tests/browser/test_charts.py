"""The charts of a run: three large ones first, lines named at their ends, one step everywhere, folded markers."""

import itertools
import re

import pytest
from playwright.sync_api import Page, expect

from labcore.analysis.doctor.doctor import payload
from labcore.analysis.doctor.finding import Change, Finding
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from tests.browser.conftest import Server

SLOW = 60_000
STEPS = 30
SHOWN = "[...document.querySelectorAll('.rl-live-chart figure')].filter(figure => !figure.hidden)"
DRAWN = f"() => {SHOWN}.every(figure => figure.querySelector('.main-svg'))"
TITLES = f"() => {SHOWN}.map(figure => figure.querySelector('b').textContent)"
# the unit of a chart where it is out of sight
CUT = """figure => { const [unit, name] = ["small", ".rl-name"].map(part => figure.querySelector(part));
    const [inner, outer] = [unit, name].map(part => part.getBoundingClientRect());
    return unit.textContent && (inner.bottom > outer.bottom + 2 || inner.right > outer.right + 1)
        ? [unit.textContent] : [] }"""
TOP = ".st-key-bar, .rl-run-head, .st-key-tiles, .rl-live-chart figcaption, .rl-scrubber, .st-key-doctor"
# The texts that are cut by the edge of a clipping element, and the values that are wider than their input boxes.
CUT_TEXTS = """(top) => {
  const found = [];
  for (const part of document.querySelectorAll(top)) {
    const texts = document.createTreeWalker(part, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const words = document.createRange();
      words.selectNodeContents(texts.currentNode);
      const clips = [];
      for (let box = texts.currentNode.parentElement; box; box = box.parentElement) {
        if (getComputedStyle(box).overflowX !== "visible") clips.push(box.getBoundingClientRect());
      }
      for (const { left, right, top, bottom, width } of words.getClientRects()) {
        const across = clips.some((clip) => {
          const beside = right <= clip.left + 1 || left >= clip.right - 1;
          const beyond = bottom <= clip.top + 3 || top >= clip.bottom - 3;
          return !beside && !beyond && (left < clip.left - 1 || right > clip.right + 1);
        });
        if (across && width > 1) found.push(texts.currentNode.textContent);
      }
    }
    part.querySelectorAll("input:not([type=range])").forEach((input) => {
      if (input.scrollWidth > input.clientWidth + 1) found.push(input.value);
    });
  }
  return found;
}"""
NUMBERS = f"() => {SHOWN}.map(figure => figure.querySelector('output').textContent)"
# where the cursor of each chart stands on its horizontal axis; null where there is none
CURSORS = f"""() => {SHOWN}.map(figure => {{ const cursor = figure.querySelector('.rl-cursor');
    const axis = figure.querySelector('.rl-plot')._fullLayout.xaxis;
    return cursor.hidden ? null : Math.round(axis.p2c(parseFloat(cursor.style.left) - axis._offset)); }})"""
MOVE = "([run, step]) => document.dispatchEvent(new CustomEvent('rl-step', { detail: { run, step } }))"
# where the charts end
LOWEST = f"() => Math.max(...{SHOWN}.map(figure => figure.querySelector('.rl-plot').getBoundingClientRect().bottom))"
# where the words under the mouse end and the lines begin, in a chart
WORDS = """() => { const [words] = document.querySelectorAll('.hoverlayer .legend');
    const plot = words?.closest('.rl-plot'), top = plot?.getBoundingClientRect().top + plot?._fullLayout.yaxis._offset;
    return words ? [words.getBoundingClientRect().bottom, top, words.textContent] : null; }"""
# the top, bottom and word of each name at a line's end, by chart
NAMES = f"""() => {SHOWN}.map(figure => [...figure.querySelectorAll('.rl-line-names > *')]
    .map(name => {{ const box = name.getBoundingClientRect(); return [box.top, box.bottom, name.textContent]; }}))"""


def metrics(step: int) -> dict[str, float]:
    reward = round(0.4 + 0.015 * step + 0.05 * (step % 2), 6)
    return {"reward": reward, "reward_std": 0.5 - 0.01 * step, "exact_match": reward, "kl": 0.002 * step,
            "kl/k1": 0.0021 * step, "kl/k2": 0.0019 * step if step != 15 else 4.0,
            "frac_reward_zero_std": 0.02 * step, "entropy": 1 / step,
            "clip_frac/region": 0.08 / step, "clip_frac/low": 0.05 / step, "clip_frac/high": 0.03 / step,
            "explained_variance": 0.01 * step, "updates": 2.0 * step}


def run_of(server: Server, monkeypatch: pytest.MonkeyPatch, algorithm: str, steps: int = STEPS,
           state: str = "finished", message: str = "") -> str:
    """A run in the server's lab with these rows and four changes of β, three of them near each other."""
    monkeypatch.setenv("RL_LAB_HOME", str(server.home))
    store = Store()
    run_id = store.create(make(algorithm_key=algorithm, task_key="sort", steps=STEPS), mine=True)
    store.set_state(run_id, "running")
    for step in range(1, steps + 1):
        store.append(run_id, Record(step, 100 * step, metrics(step)), 0.5 * step)
    for number, step in enumerate((5, 6, 7, 24)[:steps], start=1):
        store.log(run_id, "knob", {"knob": "beta", "from": 0.1 * (number - 1), "to": 0.1 * number, "update": 2 * step,
                                   "between": 1, "text": f"β 0.{number - 1} → 0.{number}"}, step)
    if steps and state != "running":
        store.set_state(run_id, state, message)
    return run_id


def opened(page: Page, server: Server, run_id: str, query: str = "") -> None:
    """Open the run's page and wait until all its charts are drawn."""
    page.goto(f"{server.url}/llm?run={run_id}{query or '&ghost=none'}")
    page.locator(".rl-live-chart .main-svg").first.wait_for(timeout=SLOW)
    page.wait_for_function(DRAWN, timeout=SLOW)


def names_stay_at_the_ends_of_their_lines_and_a_small_screen_cuts_no_text(page: Page) -> None:
    for width in (1000, 1500):
        page.set_viewport_size({"width": width, "height": 720})
        page.wait_for_timeout(1000)  # Plotly, too, has followed the window
        assert page.evaluate(f"""() => {SHOWN}.every(figure => {{
            const plot = figure.querySelector('.rl-plot'), {{ _offset, _length }} = plot._fullLayout.xaxis;
            return Math.abs(plot._fullLayout.width - plot.clientWidth) <= 1 &&
                [...figure.querySelectorAll('.rl-line-names > *')].every(name =>
                    Math.abs(parseFloat(name.style.left) - _offset - _length) < 6); }})""")
    for width, height in ((390, 844), (820, 1180)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(f"top => ({CUT_TEXTS})(top).length === 0", arg=TOP, timeout=SLOW)
        page.wait_for_function("() => document.querySelector('.stMain').scrollWidth <= window.innerWidth", timeout=SLOW)
    columns = page.locator(".rl-story-body").evaluate("body => getComputedStyle(body).gridTemplateColumns")
    assert len(columns.split()) == 1


def test_three_large_charts_show_one_step_and_fold_their_markers(
        page: Page, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = run_of(server, monkeypatch, "grpo")
    opened(page, server, run_id, "&smooth=0.8&ghost=none")
    assert page.evaluate(TITLES) == ["Reward (exact match)", "KL to the reference", "Zero-variance groups"]

    newest = ["85 %", "0.060", "60 %"]  # never the smoothed ends of the lines
    assert page.evaluate(NUMBERS) == newest and page.evaluate(CURSORS) == [None] * 3
    page.evaluate(MOVE, [run_id, 12])
    assert page.evaluate(NUMBERS) == ["58 %", "0.024", "24 %"] and page.evaluate(CURSORS) == [12] * 3
    page.evaluate(MOVE, ["another-run", 3])
    assert page.evaluate(CURSORS) == [12] * 3
    page.evaluate(MOVE, [run_id, None])
    assert page.evaluate(NUMBERS) == newest and page.evaluate(CURSORS) == [None] * 3

    names = page.evaluate(NAMES)
    assert [sorted(word for _, _, word in chart) for chart in names] == [[], ["k1", "k2", "k3"], []]
    for chart in names:
        assert all(above[1] <= below[0] + 1 for above, below in itertools.pairwise(chart))
    flags = page.locator(".rl-live-chart figure").nth(1).locator(".annotation-text-g")  # with names beside its lines
    expect(flags).to_have_text(["3 changes", "β 0.3 → 0.4", re.compile("^▲")])
    assert page.evaluate(LOWEST) <= page.locator(".rl-scrubber").bounding_box()["y"], "no bar covers an axis"
    flags.first.hover()
    for words in ("from step 5: β 0.04 → 0.1", "from step 7: β 0.2 → 0.3"):
        expect(page.locator(".hoverlayer").get_by_text(words).first).to_be_visible(timeout=SLOW)

    page.mouse.move(0, 0)
    names_stay_at_the_ends_of_their_lines_and_a_small_screen_cuts_no_text(page)
    page.locator(".rl-line-names button", has_text="k2").click()
    expect(page.locator(".rl-line-names button", has_text="k2")).to_have_class("rl-off")
    shown = page.evaluate("() => document.querySelectorAll('.rl-plot')[1].data.filter(line => line.name === 'KL, k2')"
                          ".map(line => line.visible)")
    assert shown and not any(shown)


@pytest.mark.long
def test_a_knobs_change_is_named_among_verdicts_and_a_click_asks_what_if(
        page: Page, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = run_of(server, monkeypatch, "grpo")
    for step in (24, 25):
        Store().log(run_id, "doctor", payload(Change(step, "reward_fell", Finding("The reward fell", "", ""))), step)
    page.set_viewport_size({"width": 1600, "height": 900})
    opened(page, server, run_id)
    flags = page.locator(".rl-live-chart figure").first.locator(".annotation-text-g")
    expect(flags).to_have_text(["β 0.3 → 0.4 +2", "β 0.2 → 0.3", "β 0.1 → 0.2", "β 0.04 → 0.1"])  # they have room
    flags.first.hover()
    expect(page.locator(".hoverlayer").get_by_text("What if? Click to fork").first).to_be_visible(timeout=SLOW)
    flags.first.click()
    expect(page.get_by_role("dialog")).to_be_visible(timeout=SLOW)


@pytest.mark.long
def test_a_spike_and_the_run_before_leave_room_for_the_lines(
        page: Page, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    before, run_id = (run_of(server, monkeypatch, "grpo") for _ in range(2))
    opened(page, server, run_id, f"&ghost={before}")
    chart = page.locator(".rl-live-chart figure").nth(1)
    low, high = chart.locator(".rl-plot").evaluate("plot => plot._fullLayout.yaxis.range")
    assert -0.01 < low < 0 < high < 0.2, "without the spike of k2"
    expect(chart.locator(".annotation-text-g", has_text="▲ 4.000")).to_be_visible()
    grey = chart.locator(".rl-line-names > *", has_text=re.compile(r"^#"))
    expect(grey).to_be_visible()
    assert chart.locator(".rl-plot").evaluate(
        "plot => plot.data.filter(line => ['#98A1AB', '#77828D'].includes(line.line.color)).length") == 1
    chart.locator(".rl-plot").hover()
    page.wait_for_function(f"() => ({WORDS})() !== null", timeout=SLOW)
    bottom, top, words = page.evaluate(WORDS)
    assert bottom <= top + 1 and words.startswith("Step ") and "k1" in words
    waits = run_of(server, monkeypatch, "grpo", steps=0, state="running")
    page.goto(f"{server.url}/llm?run={waits}&ghost={before}")
    number = page.locator(".rl-live-chart output").first
    expect(number).to_have_text("–", timeout=SLOW)  # that of the run before is not its own


LOOK = """() => { window.looks = [];
    const step = (text) => Number((text ?? "").match(/step ([\\d,]+)/)?.[1].replace(",", ""));
    const text = (selector) => document.querySelector(selector)?.textContent;
    window.looking = setInterval(() => looks.push([
        text(".rl-tile b"), text(".rl-live-chart output"), step(document.querySelector(".rl-live-chart output")?.title),
        step(text(".rl-run")), step(text(".rl-scrubber output"))]), 10); }"""


@pytest.mark.long
def test_status_tiles_charts_and_scrubber_are_of_one_step_at_every_moment(
        page: Page, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = run_of(server, monkeypatch, "grpo", steps=4, state="running")
    store = Store()
    opened(page, server, run_id)
    page.evaluate(LOOK)
    for step in range(5, 30):
        store.append(run_id, Record(step, 100 * step, metrics(step)), 0.5 * step)
        page.wait_for_timeout(400)
        looks = page.evaluate("() => window.looks")
        if enough := len({step for _, _, step, _, _ in looks}) > 5:  # a busy machine draws less often
            break
    page.evaluate("() => clearInterval(window.looking)")
    assert enough
    assert [look for look in looks if look[0] != look[1] or len({*look[2:]}) > 1] == []

    page.evaluate(MOVE, [run_id, 3])  # the tiles follow the hand as the charts do
    assert page.locator(".rl-tile b").first.inner_text() == page.evaluate(NUMBERS)[0] == "50 %"
    assert page.locator(".rl-tile em").first.inner_text() == "from 46 %"
    store.set_state(run_id, "stopped")


@pytest.mark.long
def test_a_researcher_sees_all_charts_and_the_link_says_so(
        page: Page, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = run_of(server, monkeypatch, "ppo")
    opened(page, server, run_id)
    assert page.evaluate(TITLES) == ["Reward (exact match)", "Clipped", "Explained variance"]
    low, high = page.evaluate(f"() => {SHOWN}[1].querySelector('.rl-plot')._fullLayout.yaxis.range")
    assert low < 0 and 8 <= high <= 11  # an axis that shows a few percent

    page.get_by_role("button", name=re.compile("^Student · steps")).click()
    page.get_by_role("radio", name="Researcher").or_(page.get_by_role("button", name="Researcher")).first.click()
    page.wait_for_url(re.compile(r"[?&]view=researcher"), timeout=SLOW)
    page.wait_for_function(f"() => ({TITLES})().length > 3", timeout=SLOW)
    assert page.evaluate(f"() => {SHOWN}.flatMap(({CUT}))") == []
    page.reload()
    page.wait_for_function(f"() => ({TITLES})().length > 3", timeout=SLOW)
    assert {"Entropy", "KL to the reference"} <= set(page.evaluate(TITLES))


@pytest.mark.long
def test_charts_have_no_axes_before_their_first_values_and_stay_open_when_these_come(
        page: Page, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = run_of(server, monkeypatch, "grpo", steps=0)
    page.goto(f"{server.url}/llm?run={run_id}")
    expect(page.locator(".rl-none").first).to_be_visible(timeout=SLOW)
    page.wait_for_timeout(1000)
    assert page.locator(".rl-live-chart .xtick, .rl-live-chart .ytick").count() == 0
    page.get_by_role("button", name=re.compile("more charts")).click()
    Store().append(run_id, Record(1, 100, {"reward": 0.5, "exact_match": 0.5}), 0.5)  # fewer lines than were expected
    page.locator(".rl-live-chart .main-svg").first.wait_for(timeout=SLOW)
    assert page.evaluate(TITLES)[0] == "Reward (exact match)" and len(page.evaluate(TITLES)) > 3
    Store().set_state(run_id, "stopped")
