"""The Compare page with long runs: how soon its curves are there, and what it costs while one of them grows.

`python -m benchmarks.compare_page` fills a store of its own in a temporary folder, starts the lab on it and drives a
Chromium whose profile has seen the lab before, as a user's has: without its cache of compiled scripts plotly.js alone
takes longer than all the rest. "first" is the first opening of these runs, whose rows the server has yet to read; the
seconds count from the click on Compare in the page Runs, or from the navigation of a new tab, until every run of the
big chart is drawn, and until all charts in sight are. A new tab pays Streamlit's own start too: beside it is how long a
page of text takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from playwright.sync_api import BrowserContext, Page, sync_playwright

from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store import dialects, schema
from labcore.runs.store.columns import keep
from labcore.runs.store.store import Store
from tests.browser.chromium import find
from tests.browser.conftest import FLAGS, Server
from tests.browser.test_runs import table, tick

VISITS = 4
ALGORITHMS = ("grpo", "rloo", "reinforce", "ppo")
# Whether so many charts are there, and each of them that is in sight has so many lines; the others are drawn once they
# are scrolled to.
DRAWN = """(charts, lines) => {
  const plots = [...document.querySelectorAll('.rl-compare-chart .rl-plot')];
  const seen = plots.filter((plot) => {
    const { top, bottom } = plot.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  });
  return plots.length >= charts && seen.length > 0 && seen.every((plot) =>
    [...plot.querySelectorAll('.scatterlayer path.js-line')].filter((line) =>
      (line.getAttribute('d') || '').includes('L')).length >= lines);
}"""
# Looks at the charts at every frame: how often one was empty, and whether the node of a chart was replaced.
WATCH = """() => {
  window.seen = { frames: 0, empty: 0, replaced: 0, slowest: 0 };
  const plots = [...document.querySelectorAll('.rl-compare-chart .rl-plot')].filter((plot) =>
    plot.querySelector('path.js-line'));
  let last = performance.now();
  const look = (now) => {
    seen.frames += 1;
    seen.slowest = Math.max(seen.slowest, now - last);
    last = now;
    seen.empty += plots.filter((plot) => !plot.querySelector('path.js-line')).length;
    seen.replaced += plots.filter((plot) => !plot.isConnected).length;
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""


def metrics(count: int, seed: int) -> list[dict[str, float]]:
    """Rows of as many metrics as GRPO logs."""
    rng = np.random.default_rng(seed)
    steps = np.arange(1, count + 1)
    reward = 1 - np.exp(-steps / (count * (0.2 + 0.05 * seed))) + 0.05 * rng.normal(size=count)
    columns = {"reward": reward, "exact_match": np.clip(reward, 0, 1), "kl": 0.1 * steps / count * rng.random(count),
               "entropy": 2 * np.exp(-steps / count), "updates": steps.astype(float)}
    others = ("tokens_per_second", "memory", "reward_std", "completions/mean_length", "completions/truncated_frac",
              "kl/k1", "kl/k2", "kl/k3", "frac_reward_zero_std", "clip_frac/low", "clip_frac/high", "clip_frac/region",
              "surrogate/cpi", "surrogate/clip", "surrogate/kl_penalised", "ratio/max", "loss", "grad_norm",
              "learning_rate", "num_tokens")
    columns |= {key: rng.random(count) for key in others}
    return [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)]


def fill(store: Store, runs: int, count: int, seeds: int) -> list[str]:
    """Runs of `count` rows, `seeds` of each setting; the last one still goes."""
    engine, made = dialects.open_engine(store.url), []
    for number in range(runs):
        setting = number // seeds
        spec = make(algorithm_key=ALGORITHMS[setting % 4], task_key="sort", steps=2 * count, seed=number % seeds,
                    knobs={"sft_steps": 0, "learning_rate": 1e-3 / (1 + setting // 4)})
        run = store.create(spec, mine=True)
        store.set_state(run, "running")
        with engine.begin() as connection:
            connection.execute(schema.steps.insert(), [
                {"run_id": run, "step": step, "tokens": 512 * step, "env_steps": 0, "seconds": 0.05 * step,
                 "metrics": json.dumps(row)} for step, row in enumerate(metrics(count, number), start=1)])
            connection.execute(schema.runs.update().where(schema.runs.c.id == run), {"step": count})
        if number < runs - 1:
            keep(store, run)  # as a worker leaves it
            store.set_state(run, "finished")
        made.append(run)
    return made


def opened(browser: BrowserContext, url: str, settings: int,
           server: psutil.Process) -> tuple[Page, float, float, float]:
    """The page in a new tab, seconds until its big chart and all charts are drawn, and of the server's CPU."""
    page = browser.new_page()
    busy, begun = cpu(server), time.perf_counter()
    page.goto(url, wait_until="commit")
    page.wait_for_function(f"() => ({DRAWN})(1, {settings})", timeout=120_000)
    big = time.perf_counter() - begun
    page.wait_for_function(f"() => ({DRAWN})(7, {settings})", timeout=120_000)
    return page, big, time.perf_counter() - begun, cpu(server) - busy


def clicked(browser: BrowserContext, lab: Server, runs: int, settings: int) -> tuple[float, float]:
    """Seconds from the click on Compare in the page Runs until its big chart and all charts are drawn."""
    page = browser.new_page()
    page.goto(f"{lab.url}/runs")
    found = table(page, runs)
    for row in range(runs):
        tick(page, found, row)
        page.get_by_text(f"{row + 1} selected").wait_for()
    begun = time.perf_counter()
    page.get_by_role("link", name="Compare").last.click()
    page.wait_for_function(f"() => ({DRAWN})(1, {settings})", timeout=120_000)
    big = time.perf_counter() - begun
    page.wait_for_function(f"() => ({DRAWN})(7, {settings})", timeout=120_000)
    whole = time.perf_counter() - begun
    page.close()
    return big, whole


def text_page(browser: BrowserContext, lab: Server) -> float:
    """Seconds from the navigation of a new tab until the page Help has its first heading."""
    page, begun = browser.new_page(), time.perf_counter()
    page.goto(f"{lab.url}/help", wait_until="commit")
    page.wait_for_function("() => document.querySelector('h3')")
    took = time.perf_counter() - begun
    page.close()
    return took


def cpu(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])


def grow(store: Store, run: str, count: int, per_second: float, stop: threading.Event) -> None:
    """Append rows to a run, as a worker does, until `stop`."""
    for step, row in enumerate(metrics(count, 99), start=count + 1):
        if stop.wait(1 / per_second):
            return
        store.append(run, Record(step, 512 * step, row), 0.05 * step)


def growing(page: Page, store: Store, run: str, options: argparse.Namespace, server: psutil.Process) -> str:
    """What it costs to watch a run that grows, and whether the charts stay as they are but for their lines."""
    stop = threading.Event()
    writer = threading.Thread(target=grow, args=(store, run, options.steps, 10.0, stop))
    writer.start()
    time.sleep(3)
    page.evaluate("zoom => Plotly.relayout(document.querySelector('.rl-plot'), zoom)",
                  {"xaxis.range[0]": 100, "xaxis.range[1]": 5000})
    before = page.evaluate("document.querySelector('.rl-plot').data.map(trace => trace.y.at(-1)).join()")
    page.evaluate(WATCH)
    busy, begun = cpu(server), time.perf_counter()
    time.sleep(options.seconds)
    share = (cpu(server) - busy) / (time.perf_counter() - begun)
    seen = page.evaluate("seen")
    zoom = page.evaluate("document.querySelector('.rl-plot').layout.xaxis.range")
    after = page.evaluate("document.querySelector('.rl-plot').data.map(trace => trace.y.at(-1)).join()")
    stop.set()
    writer.join()
    return (f"while it grows: server {share:.1%} of a core; curves {'moved' if before != after else 'DID NOT MOVE'}; "
            f"{seen['frames'] / options.seconds:.0f} frames/s, slowest {seen['slowest']:.0f} ms, charts empty in "
            f"{seen['empty']}, replaced in {seen['replaced']} of them; zoom {zoom}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=1, help="runs of each setting")
    parser.add_argument("--rounds", type=int, default=5, help="warm openings")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the growing run is watched")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        os.environ["RL_LAB_HOME"] = folder
        store = Store()
        runs = fill(store, options.runs, options.steps, options.seeds)
        lab = Server(Path(folder))
        browser = playwright.chromium.launch_persistent_context(
            Path(folder) / "profile", executable_path=find(), args=FLAGS, viewport={"width": 1280, "height": 720})
        try:
            measure(browser, lab, store, runs, options)
        finally:
            browser.close()
            lab.stop()


def measure(browser: BrowserContext, lab: Server, store: Store, runs: list[str], options: argparse.Namespace) -> None:
    """Print what was measured."""
    settings, server = -(-options.runs // options.seeds), psutil.Process(lab.process.pid)
    for _ in range(VISITS):  # the server imports what the page needs, the browser keeps what it compiled
        opened(browser, f"{lab.url}/compare?runs={runs[0]}", 1, server)[0].close()
    for number in range(options.rounds + 1):
        big, whole = clicked(browser, lab, len(runs), settings)
        print(f"click in Runs, {'again' if number else 'first'}: big chart {big:.2f} s, all charts {whole:.2f} s "
              f"(load {os.getloadavg()[0]:.1f})", flush=True)
    url = f"{lab.url}/compare?runs={','.join(runs)}"
    took, plain = [], []
    for number in range(options.rounds + 1):
        plain.append(text_page(browser, lab))
        page, big, whole, busy = opened(browser, url, settings, server)
        name, load = f"address, {'again' if number else 'first in a tab'}", os.getloadavg()[0]
        print(f"{name}: big chart {big:.2f} s, all charts {whole:.2f} s, server CPU {busy:.2f} s (load {load:.1f})",
              flush=True)
        took += [big] if number else []
        if number < options.rounds:
            page.close()
    print(f"address, again, median: {statistics.median(took):.2f} s; a page of text {statistics.median(plain):.2f} s")
    print(growing(page, store, runs[-1], options, server))


if __name__ == "__main__":
    main()
