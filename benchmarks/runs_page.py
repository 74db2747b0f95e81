"""How fast 200 runs are in the table: `python -m benchmarks.runs_page` makes a lab of them and opens it in a browser.

Measured are, in seconds: reading the list for the first time and again in a new process, then in the browser from the
click on Runs and from a new address to the table being drawn, beside the same for an almost empty page.
"""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from labcore.files.paths import run_folder
from labcore.shelf.shelf import Shelf
from labcore.spec.run_spec import make
from labcore.store import schema
from labcore.store.store import Store
from tests.browser.chromium import find
from tests.browser.conftest import FLAGS, Server

RUNS, TIMES = 200, 5
LENGTHS = (150, 200, 300, 600, 1000, 2000)
OTHERS = ("kl", "kl/k1", "kl/k2", "kl/k3", "exact_match", "entropy", "loss", "grad_norm", "learning_rate", "updates",
          "num_tokens", "tokens_per_second", "memory", "clip_frac/region", "completions/mean_length", "reward_std")


def fill(store: Store) -> int:
    """Runs as a busy month leaves them: rows, samples, checkpoints. Returns the number of rows."""
    numbers, rows = random.Random(0), 0
    for place in range(RUNS):
        steps = LENGTHS[place % len(LENGTHS)]
        spec = make(algorithm_key=("grpo", "ppo", "rloo")[place % 3], task_key="sort", steps=steps, seed=place % 5)
        run_id = store.create(spec)
        with store._writing() as connection:
            connection.execute(schema.steps.insert(), [_row(run_id, step, steps, numbers) for step in
                                                       range(1, steps + 1)])
            connection.execute(schema.runs.update().where(schema.runs.c.id == run_id), {
                "state": "finished", "step": steps, "seconds": 0.1 * steps, "created": time.time() - 3600 * place,
                "ended": time.time() - 3600 * place})
        for name in [f"samples/step-{step:06d}.json" for step in range(5, steps, 5)] + [
                f"checkpoints/step-{step:06d}/model.safetensors" for step in range(0, steps, steps // 10)]:
            path = run_folder(run_id) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}")
        rows += steps
    return rows


def _row(run_id: str, step: int, steps: int, numbers: random.Random) -> dict:
    metrics = {key: numbers.random() for key in OTHERS}
    metrics["reward"] = 1 - math.exp(-3 * step / steps) + numbers.gauss(0, 0.05)
    return {"run_id": run_id, "step": step, "tokens": 1000 * step, "env_steps": 0, "seconds": 0.1 * step,
            "metrics": json.dumps(metrics)}


def timed(do: Callable[[], object]) -> float:
    begun = time.perf_counter()
    do()
    return time.perf_counter() - begun


def told(name: str, seconds: list[float]) -> None:
    print(f"{name:<44} {statistics.median(seconds):6.2f} s   ({min(seconds):.2f} to {max(seconds):.2f})", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        os.environ["RL_LAB_HOME"] = home
        store = Store()
        print(f"{RUNS} runs, {fill(store):,} rows")
        told("list, read for the first time", [timed(Shelf(store).entries)])
        told("list, read by a new process", [timed(Shelf(store).entries) for _ in range(TIMES)])
        server, browser = Server(Path(home)), playwright.chromium.launch(executable_path=find(), args=FLAGS)
        try:
            in_browser(browser.new_page(viewport={"width": 1280, "height": 720}), server.url)
        finally:
            browser.close()
            server.stop()


# Whether the table's canvas has ink where its first rows are.
DRAWN = """() => {
  const canvas = document.querySelector("[data-testid=stDataFrame] canvas");
  if (!canvas?.width) return false;
  const dots = canvas.getContext("2d").getImageData(200, 40, 300, 120).data;
  return dots.filter((value, i) => i % 4 === 0 && value < 120).length > 200;
}"""


def in_browser(page: Page, url: str) -> None:
    def drawn() -> None:
        page.wait_for_function(DRAWN, polling="raf")

    def runs() -> None:
        page.goto(f"{url}/runs", wait_until="commit")
        drawn()

    def other() -> None:
        page.goto(f"{url}/help", wait_until="commit")
        page.get_by_role("heading", name="Keyboard").wait_for()

    def click() -> None:
        page.get_by_test_id("stTopNav").get_by_role("link", name="Runs").click()
        drawn()

    def click_after_other() -> float:
        other()
        page.wait_for_timeout(500)
        return timed(click)

    runs()  # warm
    told("browser, click on Runs to the table drawn", [click_after_other() for _ in range(TIMES)])
    told("browser, address to the table drawn", [timed(runs) for _ in range(TIMES)])
    told("browser, address to another page's heading", [timed(other) for _ in range(TIMES)])


if __name__ == "__main__":
    main()
