"""What the lab computes, as a table of hashes: the same table before and after a change is the same behaviour.

    python -m benchmarks.behaviour --code DIR --out before.txt      runs every case with the code in DIR
    python -m benchmarks.behaviour --compare before.txt after.txt   names the lines that differ; exit status 1

A case of `behaviour_cases.json` is a short run, a fork, a run that is paused, turned, stopped and resumed, One batch,
answers, a policy at play, or a replay. Its line is a SHA-256 over every deterministic number of every step, and over
the samples and surrogate lines that the run left. All goes through the command line of DIR, on the cpu, with one thread
and one run at a time, and every knob is given its value, so that only behaviour is compared, not defaults.

Two tables compare only if they were made on one machine with the same packages. What the code of the file's commit
did not log or draw is left out, so a new metric is no difference. So are times, speeds, memory and words.

Left out: defaults, except where a base model is taught on the way (`own-base`, `steer`); of One batch the step of
equal length, which is the shortest of all algorithms', whichever there are; hubs, GPUs, sweeps, pages.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

Case = dict[str, Any]
CASES = json.loads(Path(__file__).with_name("behaviour_cases.json").read_text("utf-8"))
COUNTERS = ("step", "tokens", "env_steps")
TRIES, POLL_SECONDS = 5, 0.02
ENDED = ("finished", "stopped", "interrupted", "failed", "diverged")

# Runs one command after the other as `python -m labcore` does; starting Python and torch anew takes 5 seconds a case.
_SHELL = """
import contextlib, io, json, runpy, sys, traceback
replies = sys.stdout
for line in sys.stdin:
    sys.argv, out = ["labcore", *json.loads(line)], io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            status = runpy.run_module("labcore", run_name="__main__") and 0
        except SystemExit as end:
            status = end.code
        except Exception:
            status = traceback.print_exc() or "broken"
    print(json.dumps([status, out.getvalue()]), file=replies, flush=True)
"""
# Networks that are no Llama of the lab's own equations, with random weights and the tokenizer of an exported run.
_NETWORKS = """
import sys, torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
source, target = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(source)
for kind, size in {"gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64},
                   "qwen2": {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
                             "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64},
                   "mamba": {"hidden_size": 16, "state_size": 4, "num_hidden_layers": 2}}.items():
    config = AutoConfig.for_model(kind, vocab_size=len(tokenizer), initializer_range=0.3, bos_token_id=None,
                                  eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, **size)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(f"{target}/{kind}")
    tokenizer.save_pretrained(f"{target}/{kind}")
"""


class Failed(Exception):
    """A command did not end as it should; the text is the last thing it said."""


class Shell:
    """A process in which the checkout `code` obeys its command line, one command after the other."""

    def __init__(self, code: Path, environment: dict[str, str], log: Path):
        self.log = log
        self._process = subprocess.Popen([sys.executable, "-c", _SHELL], cwd=code, env=environment, text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("w"))

    def begin(self, *words: str) -> int:
        """Start a command. Returns at which byte of the log its words begin."""
        place = self.log.stat().st_size
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return place

    def run_begun(self, place: int) -> str:
        """Wait until the command that was begun says which run it makes; the run's id. Raises Failed where it ended
        without one."""
        ended = False
        while not (found := re.search(rb"^run (\S+)", self.log.read_bytes()[place:], re.MULTILINE)):
            if ended:
                raise Failed(f"no run was made: {self.finish().strip()}")
            ended = bool(select.select([self._process.stdout], [], [], POLL_SECONDS)[0])
        return found[1].decode()

    def finish(self) -> str:
        """Wait for the command that was begun; what it printed. Raises Failed where it only said why it could not."""
        line = self._process.stdout.readline()
        status, out = json.loads(line) if line else ("gone", "")
        if status and not out:
            raise Failed((self.log.read_text("utf-8").strip().splitlines() or [""])[-1])
        return out

    def __call__(self, *words: str) -> str:
        self.begin(*words)
        return self.finish()

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait()


class Lab:
    """A lab folder under `root`, a process that trains and one that steers; `runs` are the ids by the cases' names."""

    def __init__(self, code: Path, root: Path):
        self.root, self.home, self.runs = root, root / "lab", {}
        environment = {key: value for key, value in os.environ.items() if not key.startswith("RL_LAB_")} | {
            "RL_LAB_HOME": str(self.home), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1"}
        self.worker, self.desk = (Shell(code, environment, root / name) for name in ("worker.log", "desk.log"))
        self.desk("runs")  # from here on it answers at once
        for name, text in CASES["files"].items():
            (root / name).write_text(text, "utf-8")

    def model(self, name: str) -> str:
        """`@case` is the model that a case left, `#kind` a network of another kind; else a built-in one."""
        if name.startswith("@"):
            return self.runs[name[1:]]
        if not name.startswith("#"):
            return name
        networks, source = self.root / "networks", self.root / "taught"
        if not networks.exists():
            self.desk("export", self.runs["llm/sft/sort"], "--out", str(source))
            subprocess.run([sys.executable, "-c", _NETWORKS, str(source / "checkpoint"), str(networks)], check=True,
                           capture_output=True)
        return str(networks / name[1:])

    def state(self, run: str) -> dict[str, Any]:
        return next(row for row in json.loads(self.desk("runs", "--json")) if row["run"] == run)

    def paused(self, run: str, step: int = 0) -> int | None:
        """Wait, on a busy machine for long, until the run has made `step` steps and is paused; how many steps it has
        made. None where it has ended."""
        while (row := self.state(run))["state"] not in ENDED:
            if row["state"] == "paused" and row["step"] >= step:
                return int(row["step"])
            time.sleep(POLL_SECONDS)
        return None

    def end(self) -> None:
        self.worker.end()
        self.desk.end()


# ---------------------------------------------------------------- what a case does


def run(lab: Lab, case: Case) -> Any:
    return _outcome(lab, case, json.loads(lab.worker(*_run_words(lab, case)))["run"])


def fork(lab: Lab, case: Case) -> Any:
    parent = _case(case["of"])
    knobs = case["set"]
    if "algorithm" in case:
        fresh = _knobs({**parent, "algorithm": case["algorithm"], "set": {}})
        knobs = fresh | {key: value for key, value in parent["set"].items() if key in fresh} | knobs
    given = [f"--{key}={case[key]}" for key in ("step", "algorithm", "seed", "steps") if key in case]
    words = ["fork", lab.runs[case["of"]], *given, *(["--fresh"] if case.get("fresh") else []), *_set(knobs), "--json"]
    return _outcome(lab, case, json.loads(lab.worker(*words))["run"])


def hold(lab: Lab, words: Sequence[str], after: int) -> str:
    """Begin the run that the command makes, and have it wait after step `after`. Returns its id."""
    for _ in range(TRIES):
        run = lab.worker.run_begun(lab.worker.begin(*words))
        with suppress(Failed):  # it has ended already
            lab.desk("pause", run)
        step = lab.paused(run)
        while step is not None and step < after:
            lab.desk("step", run)
            step = lab.paused(run, step + 1)
        if step == after:
            return run
        if step is not None:
            lab.desk("stop", run)
        lab.worker.finish()  # it was too fast: once more
    raise Failed(f"the run could not be paused after step {after} in time: {' '.join(words)}")


def turn(lab: Lab, run: str, knobs: dict[str, Any]) -> None:
    """Give a waiting run other knobs, and let it go on to its end."""
    lab.desk("set", run, *(f"{key}={value}" for key, value in knobs.items()))
    lab.desk("resume", run)
    lab.worker.finish()


def stop(lab: Lab, run: str) -> None:
    """Stop a waiting run."""
    lab.desk("stop", run)
    lab.worker.finish()


def steer(lab: Lab, case: Case) -> Any:
    """A run that waits after step `after`, where its knobs are turned, or where it is stopped and resumed with them."""
    run = hold(lab, _run_words(lab, case), case["after"])
    if case["stop"]:
        stop(lab, run)
        lab.worker("resume", run, *_set(case["change"]), "--json")
    else:
        turn(lab, run, case["change"])
    return _outcome(lab, case, run)


def resume(lab: Lab, case: Case) -> Any:
    """The run of another case, which diverged, with other knobs."""
    words = ["resume", lab.runs[case["of"]], *_set(case["change"]), "--json"]
    return _outcome(lab, case, json.loads(lab.worker(*words))["run"])


def ask(lab: Lab, case: Case) -> Any:
    """One batch, answers, or a policy at play: what the command prints as JSON."""
    found = _nameless(lab, lab.worker(case["do"], lab.runs[case["of"]], *case["options"], "--json"))
    if case["do"] == "batch":  # only the algorithms that the table knows
        there = [place for place, row in enumerate(found["algorithms"]) if row["key"] in CASES["defaults"]["llm"]]
        found["algorithms"] = [found["algorithms"][place] for place in there]
        found["cosines"] = [[found["cosines"][row][column] for column in there] for row in there]
        found["effects"] = {key: {"own": effect["own"]} for key, effect in found["effects"].items()}
        del found["step_length"]
    return _known(found)


def replay(lab: Lab, case: Case) -> Any:
    capsule = lab.root / "capsule.zip"
    lab.desk("export", lab.runs[case["of"]], "--capsule", "--out", str(capsule))
    verdict = json.loads(lab.worker("replay", str(capsule), "--json"))
    return {key: verdict[key] for key in ("matches", "steps", "overtaken")}


DO: dict[str, Callable[[Lab, Case], Any]] = {
    "run": run, "fork": fork, "steer": steer, "resume": resume, "replay": replay, **dict.fromkeys(
        ("batch", "answer", "play"), ask)}


def _case(name: str) -> Case:
    """The case of that name; of a fork as the run that it would be."""
    case = next(case for case in CASES["cases"] if case["name"] == name)
    return _case(case["of"]) | case | {"set": _case(case["of"])["set"] | case["set"]} if case["do"] == "fork" else case


def _knobs(case: Case) -> dict[str, Any]:
    """Every knob of a run: the defaults of its algorithm and task as they were frozen, then what the case sets."""
    task = CASES["tasks"][case["kind"]].get(case["task"], {})
    own = CASES["defaults"][case["kind"]][case["algorithm"]]
    usual = task.get("defaults", {}) | (task.get("sft", {}) if case["algorithm"] == "sft" else {})
    return own | {key: usual[key] for key in own if key in usual} | task.get("knobs", {}) | case["set"]


def _set(knobs: dict[str, Any]) -> list[str]:
    return [f"--set={key}={value}" for key, value in knobs.items()]


def _run_words(lab: Lab, case: Case) -> list[str]:
    given = [f"--{key}={case[key]}" for key in ("kind", "algorithm", "steps", "seed")]
    option, file = case.get("file", ("--task", ""))
    words = [option, str(lab.root / file) if file else case["task"]]
    model = [f"--model={lab.model(case['model'])}"] if "model" in case else []
    return ["run", *given, *words, *model, *_set(_knobs(case)), "--device=cpu", "--threads=1", "--json"]


# ---------------------------------------------------------------- what came of it


def _outcome(lab: Lab, case: Case, run: str) -> Any:
    """State, steps, turns of knobs, samples and lines of a run, without what the machine did."""
    lab.runs[case["name"]] = run
    folder = lab.root / "export"
    lab.desk("export", run, "--out", str(folder))
    state, keys = lab.state(run), {*COUNTERS, *CASES["metrics"]}
    return {"state": state["state"], "step": state["step"], "steps": _rows(folder / "metrics.csv", keys),
            "turns": _rows(folder / "knobs.csv", {"update", "knob", "from", "to"}),
            "seen": {path.relative_to(lab.home / run).as_posix(): _known(_nameless(lab, path.read_text("utf-8")))
                     for name in ("samples", "lines") for path in sorted((lab.home / run / name).glob("*.json"))}}


def _rows(path: Path, keys: Iterable[str]) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [{key: text for key, text in row.items() if key in keys and text} for row in csv.DictReader(file)]


def _nameless(lab: Lab, text: str) -> Any:
    """JSON with the cases' names in place of the runs' ids."""
    for name, run in lab.runs.items():
        text = text.replace(run, name)
    return json.loads(text)


def _known(content: Any) -> Any:
    """`content` with those keys only that were there when the cases were frozen, and with numbers as keys."""
    if isinstance(content, dict):
        return {key: _known(value) for key, value in content.items() if key in CASES["seen"] or key.isdigit()}
    return [_known(value) for value in content] if isinstance(content, list) else content


# ---------------------------------------------------------------- the table


def chosen(only: str) -> list[Case]:
    """The cases whose names match, and those that they start from."""
    cases = {case["name"]: case for case in CASES["cases"]}
    wanted = {name for name in cases if re.search(only, name)}
    for name in reversed(cases):
        if name in wanted:
            model = cases[name].get("model", "")
            wanted |= {cases[name].get("of", name), model[1:] if model.startswith("@") else name}
            wanted |= {"llm/sft/sort"} if model.startswith("#") else set()
    return [case for name, case in cases.items() if name in wanted]


def table(code: Path, only: str, keep: Path | None, say: Callable[[str], object]) -> list[str]:
    """A line per case: its name, the hash of what it gave, and in words how it ended and how many steps it made."""
    lines = []
    with tempfile.TemporaryDirectory(prefix="rl-lab-behaviour-") as root:
        lab = Lab(code.resolve(), Path(root))
        try:
            for case in chosen(only):
                begun = time.perf_counter()
                try:
                    found = DO[case["do"]](lab, case)
                except (Failed, KeyError, StopIteration) as error:
                    found = {"state": f"failed: {error}"}
                text = json.dumps(found, sort_keys=True, ensure_ascii=False, indent=1)
                words = f"{found.get('state', '')} {len(found.get('steps', ())) or ''}" if case["do"] in (
                    "run", "fork", "steer", "resume") else case["do"]
                lines.append(f"{case['name']}  {hashlib.sha256(text.encode()).hexdigest()}  {words}".strip())
                say(f"{time.perf_counter() - begun:5.1f} s  {lines[-1]}")
                if keep:
                    (keep / f"{case['name'].replace('/', '-')}.json").write_text(text, "utf-8")
        finally:
            lab.end()
    return lines


def differences(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The lines that one table has and the other has not, "-" or "+" in front."""
    gone, new = set(before) - set(after), set(after) - set(before)
    return [f"- {line}" for line in before if line in gone] + [f"+ {line}" for line in after if line in new]


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a table, or compare two. Returns 1 where a case failed or lines differ."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--code", type=Path, default=Path(__file__).parents[1], help="the checkout (default: this one)")
    parser.add_argument("--out", type=Path, help="where the table goes (default: it is printed)")
    parser.add_argument("--only", default="", metavar="REGEX", help="only the cases of these names")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep what is hashed, to see what differs")
    parser.add_argument("--compare", type=Path, nargs=2, metavar="TABLE", help="compare two tables instead")
    options = parser.parse_args(arguments)
    if options.compare:
        before, after = (path.read_text("utf-8").splitlines() for path in options.compare)
        print("\n".join(found := differences(before, after)) or f"the same {len(before)} lines")
        return 1 if found else 0
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    lines = table(options.code, options.only, options.keep, partial(print, file=sys.stderr, flush=True))
    print(f"{len(lines)} lines in {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", "utf-8")
    else:
        print("\n".join(lines))
    return 1 if any("  failed: " in line for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
