"""Stores of every mixture: runs of all kinds in all states, with or without rows, in sweeps, as forks, imported, in the
trash and deleted for good."""

import json
from pathlib import Path
from random import Random
from typing import Any

from labcore.analysis.lessons import course, folders, progress
from labcore.analysis.studies import plan
from labcore.analysis.studies.rows import STUDIES
from labcore.catalog.kinds import KINDS
from labcore.catalog.metrics import METRICS
from labcore.catalog.panels import PANELS
from labcore.errors import LabError
from labcore.runs import sweep
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import run_folder
from labcore.runs.halving import Halving
from labcore.runs.imports import imported
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.spec.session import Record
from labcore.runs.store.rows import ENDED, RESUMABLE, STATES
from labcore.runs.store.store import Store
from tests.app import seeding

STEPS = 6


class RandomStore:
    """A store filled by chance; the same seed fills it alike. `named` are the ids of all that were ever made."""

    def __init__(self, store: Store, seed: int):
        self.store, self.rng = store, Random(seed)
        self.named: list[str] = []
        for make_some in self.rng.sample([self.single, self.single, self.swept, self.compared, self.forked,
                                          self.lesson, self.study, self.imports], self.rng.randint(1, 6)):
            make_some()
        self.delete_some()

    @property
    def sweeps(self) -> list[str]:
        return [each.id for each in sweep.sweeps(self.store)]

    def some(self, most: int = 5) -> list[str]:
        """Runs by chance: there, in the trash, and never made."""
        names = [*self.named, "grpo-sort-none"]
        return self.rng.sample(names, min(len(names), self.rng.randint(1, most)))

    def spec(self, **fixed: Any) -> RunSpec:
        """Any algorithm of any kind on any task that it learns and that needs no file."""
        while True:
            kind = self.rng.choice([*KINDS])
            row = self.rng.choice([*KINDS[kind].algorithms.values()])
            task = self.rng.choice([each for each in KINDS[kind].tasks.values() if not each.data])
            try:
                return make(kind=kind, algorithm_key=row.key, task_key=task.key, steps=STEPS,
                            seed=self.rng.randrange(3), **fixed)
            except LabError:
                continue

    # ---- what there is -----------------------------------------------------------------------------------------

    def single(self) -> None:
        """Runs one by one."""
        for _ in range(self.rng.randint(1, 4)):
            self.go(self.store.create(self.spec()))

    def swept(self) -> None:
        """A sweep of one or two knobs, with early stopping or not."""
        spec = make(algorithm_key=self.rng.choice(["grpo", "ppo", "dpo"]), task_key="sort", steps=STEPS)
        axes = {key: values for key, values in {"beta": [0.05, 0.1], "learning_rate": [1e-4, 3e-4, 1e-3]}.items()
                if self.rng.random() < 0.8}
        early = Halving("reward", 2, 2).to_json() if spec.algorithm != "dpo" and self.rng.random() < 0.3 else ""
        self.queued(sweep.grid(spec, axes, range(self.rng.randint(1, 3))), early)

    def compared(self) -> None:
        """Any runs at all, queued as one sweep."""
        self.queued([self.spec() for _ in range(self.rng.randint(1, 6))])

    def queued(self, specs: list[RunSpec], early: str = "") -> None:
        """A sweep of these; `early` is how it is stopped early, which to queue so would need Optuna."""
        for run_id in self.store.create_all(specs, sweep=f"sweep-{len(self.named)}", halving=early):
            self.go(run_id)

    def forked(self) -> None:
        """A run with a fork of one of its steps, and perhaps a fork of that."""
        spec = self.spec()
        parent, at = self.store.create(spec), 0
        self.go(parent)
        for _ in range(self.rng.randint(1, 2)):
            at = max(at, self.store.run(parent).step)
            checkpoint.save(run_folder(parent), at, lambda folder: (folder / "policy").mkdir())
            fork = self.spec_of_fork(spec, parent, at)
            parent = self.store.create(fork)
            self.go(parent)

    def spec_of_fork(self, spec: RunSpec, parent: str, at: int) -> RunSpec:
        return make(kind=spec.kind, algorithm_key=spec.algorithm, task_key=spec.task, knobs=spec.knobs, steps=STEPS,
                    seed=self.rng.randrange(3), parent=(parent, at), twin=self.rng.random() < 0.5)

    def lesson(self) -> None:
        """A lesson whose prediction is made; its runs are anywhere."""
        lesson = self.rng.choice(folders.lessons()[0])
        try:
            if lesson.choices:
                progress.predict(lesson.name, self.rng.randrange(len(lesson.choices)))
            else:
                progress.predict(lesson.name, curve=((0.0, 0.0), (1.0, 1.0)))
        except LabError:
            return  # it was chosen before
        started = course.start(self.store, lesson)
        progress.begin(lesson.name, started)
        for run in sweep.sweep(self.store, started).runs:
            self.go(run.id)

    def study(self) -> None:
        """Some of a study's runs."""
        study = self.rng.choice([each for each in STUDIES.values() if not each.scorers])
        missing = plan.missing(study, plan.found(study, self.store.sweep_runs()[::-1]))
        if missing:
            found = sweep.sweep(self.store, plan.queue(self.store, missing[:self.rng.randint(1, len(missing))]))
            for run in found.runs:
                self.go(run.id)

    def imports(self) -> None:
        """Metrics of other tools."""
        for number in range(self.rng.randint(1, 3)):
            names = ["reward", *self.rng.sample(["kl", "loss", "num_tokens"], self.rng.randint(0, 3))]
            rows = [[step, *(round(self.rng.random() * 100 ** (name == "num_tokens") + step, 3) for name in names)]
                    for step in range(1, self.rng.randint(2, STEPS))]
            text = "\n".join(",".join(map(str, row)) for row in [["step", *names], *rows])
            found = imported.keep(self.store, f"other-{number}.csv", text.encode(), self.rng.choice(["", "mine"]))
            self.named += [each.id for each in found]

    # ---- how far it has come -----------------------------------------------------------------------------------

    def go(self, run_id: str) -> None:
        """Bring a queued run into any state, with any number of rows that fits."""
        state, steps = self.rng.choice(STATES), self.rng.randint(0, STEPS)
        if run_id not in self.named:
            self.named.append(run_id)
        if state == "queued" and self.rng.random() < 0.6:
            if self.rng.random() < 0.5:
                self.store.set_waiting({run_id: 1})
            return
        self.store.claim(run_id)
        if state == "starting":
            return
        if state in RESUMABLE and self.rng.random() < 0.2:  # it never began
            self.store.set_state(run_id, state, "Why it ended.")
            return
        self.trained(run_id, STEPS if state == "finished" else steps)
        if state == "queued":  # it was interrupted, and is to be resumed
            self.store.set_state(run_id, "interrupted", "its process is gone")
            self.store.requeue(run_id)
        elif state != "running":
            self.store.set_state(run_id, state, self.rng.choice(["", "Why it ended."]))
        if state in ("running", "paused") and self.rng.random() < 0.3:
            self.store.ask(run_id, self.rng.choice(["pause", "stop", "resume", "step"]))

    def trained(self, run_id: str, steps: int) -> None:
        """A run that has made so many steps, with what is kept of them."""
        self.store.set_state(run_id, "running")
        for step in range(1, steps + 1):
            self.row(run_id, step)
        if self.rng.random() < 0.3:
            self.looked_at(run_id)
        if self.rng.random() < 0.2:
            self.turn(run_id)

    def row(self, run_id: str, step: int) -> None:
        """A step with some of the metrics of the run's charts: some are measured now and then, some never."""
        spec = self.store.run(run_id).spec
        keys = [key for panel in spec.row.panels for key in PANELS[panel].metrics if key in METRICS]
        metrics = {key: self.rng.choice([0.0, 1.0, self.rng.random(), self.rng.gauss(0, 3)]) for key in keys
                   if self.rng.random() < 0.7}
        if spec.kind != "maze":
            metrics["updates"] = float(2 * step)
        walks = spec.kind in ("maze", "cartpole")
        self.store.append(run_id, Record(step, 0 if walks else 100 * step, metrics, 50 * step if walks else 0),
                          0.5 * step)

    def looked_at(self, run_id: str) -> None:
        """Samples, a line and a checkpoint, of a language model's run."""
        spec, folder = self.store.run(run_id).spec, run_folder(run_id)
        if spec.kind != "llm" or spec.row.loop != "online":
            return
        for kind, content in (("samples", seeding.samples(1.3)), ("lines", seeding.line())):
            write(folder / kind / f"step-{content['step']:06d}.json", content)
        write(folder / "spec.json", json.loads(spec.to_json()))
        (folder / "checkpoints" / "step-000002" / "policy").mkdir(parents=True, exist_ok=True)

    def turn(self, run_id: str) -> None:
        """A knob was changed mid-run."""
        spec = self.store.run(run_id).spec
        if "learning_rate" in spec.knobs:
            self.store.log(run_id, "knob", {"knob": "learning_rate", "from": 0.001, "to": 0.002, "update": 2,
                                            "between": 1, "text": "η 0.001 → 0.002"}, self.rng.randint(1, 3))

    def move_on(self) -> None:
        """Some queued runs start, some live runs end, and some others are deleted, while a page is open."""
        for run in self.store.runs():
            if self.rng.random() < 0.5:
                continue
            if run.state == "queued" and not run.step:
                self.go(run.id)
            elif run.state in ("running", "paused") and run.pid is not None:
                self.row(run.id, run.step + 1)
                self.store.set_state(run.id, self.rng.choice(ENDED), "Why it ended.")
        self.delete_some()

    def delete_some(self) -> None:
        """Put some runs that are not live into the trash, and delete some of these for good."""
        for name in self.named:
            if self.rng.random() < 0.15:
                try:
                    self.store.trash([name])
                    if self.rng.random() < 0.5:
                        self.store.delete(name)
                except LabError:
                    continue  # a worker has it


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
