"""What a soak saw: counts, and each failure with the command that repeats it."""

import os
import platform
from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Failure:
    """What went wrong in a trial, and how to see it again."""

    trial: str
    what: str
    again: str


@dataclass
class Report:
    """Filled by the trials. `counts` has a table for each heading: what was counted, and how often."""

    seed: int
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def count(self, heading: str, what: str, times: int = 1) -> None:
        self.counts.setdefault(heading, Counter())[what] += times

    def fail(self, trial: str, what: str, again: str) -> None:
        self.failures.append(Failure(trial, what, again))

    def markdown(self, seconds: float) -> str:
        """The whole report."""
        minutes, rest = divmod(round(seconds), 60)
        verdict = f"**{len(self.failures)} failures**" if self.failures else "No failure"
        lines = ["# Soak", "", f"{verdict} in {minutes} min {rest} s with seed {self.seed}; {os.cpu_count()} cores, "
                 f"Python {platform.python_version()}, {platform.system()}.", ""]
        for heading, table in self.counts.items():
            lines += [f"## {heading}", "", "| | |", "|---|---:|"]
            lines += [f"| {what} | {times} |" for what, times in sorted(table.items())]
            lines += [f"| all | {table.total()} |", ""]
        lines += [f"* {note}" for note in self.notes]
        if self.failures:
            lines += ["", "## Failures", ""]
        for failure in self.failures:
            lines += [f"### {failure.trial}", "", f"{failure.what}", "", "Again:", "", f"    {failure.again}", ""]
        return "\n".join(lines).rstrip() + "\n"
