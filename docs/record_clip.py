"""Record Home's clip: `python -m docs.record_clip` trains for half a minute and writes its clip.json.

The clip is a real run as it was: its curve, and of every recorded step the first group that the model wrote. Nothing is
chosen by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from labcore.runs.files.paths import run_folder
from labcore.runs.store.store import Store

CLIP = Path(__file__).parents[1] / "app" / "components" / "recorded_clip" / "clip.json"
RUN = {"algorithm": "grpo", "task": "sort", "model": "tiny", "seed": 0, "steps": 200}
METRIC = "exact_match"


def main() -> None:
    """Train in a folder of its own, then keep what is to be shown."""
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"RL_LAB_HOME": home}
        options = [word for key, value in RUN.items() for word in (f"--{key}", str(value))]
        done = subprocess.run([sys.executable, "-m", "labcore", "run", *options, "--device", "cpu", "--json"],
                              stdout=subprocess.PIPE, check=True, text=True)
        clip = recorded(Store(), json.loads(done.stdout)["run"])
    CLIP.write_text(json.dumps(clip, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{CLIP}: {CLIP.stat().st_size:,} bytes, {clip['values'][0]} to {clip['values'][-1]} in {clip['seconds']} s")


def recorded(store: Store, run_id: str) -> dict:
    """The run as plain data: `values` are the metric's, one per step; `groups` the first group of the steps kept."""
    row = store.run(run_id)
    steps = store.steps_after(run_id)
    label = f"{row.spec.row.label} on {row.spec.task_row.label.lower()}, after SFT"
    return {"run": RUN, "label": label, "metric": METRIC,
            "date": datetime.now(UTC).date().isoformat(), "machine": f"{os.cpu_count()} cores, no GPU",
            "seconds": round(row.seconds, 1), "values": [round(step.metrics[METRIC], 3) for step in steps],
            "groups": [_group(path) for path in sorted((run_folder(run_id) / "samples").glob("step-*.json"))]}


def _group(path: Path) -> dict:
    content = json.loads(path.read_text(encoding="utf-8"))
    group = content["groups"][0]
    return {"step": content["step"], "prompt": group["prompt"], "target": group["answer"], "answers": [
        [completion["text"], round(completion["reward"], 2), round(completion["advantage"], 2)]
        for completion in group["completions"]]}


if __name__ == "__main__":
    main()
