"""The tools to which a run can be handed over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from labcore.catalog.knob import suggestion
from labcore.errors import LabError, quoted
from labcore.exports.handover import ms_swift, openrlhf, trl, verl
from labcore.exports.handover.plan import Line, Plan


@dataclass(frozen=True)
class Tool:
    """A row: the tool's name, its script, and the line of each knob."""

    key: str
    label: str
    version: str
    language: str
    suffix: str
    script: Callable[[Plan], str]
    mapped: Callable[[Plan], list[Line]]

    def file(self, run: str) -> str:
        """The file name of the script for a run."""
        return f"{run}-{self.key}.{self.suffix}"


TOOLS: dict[str, Tool] = {tool.key: tool for tool in (
    Tool("trl", "TRL", trl.VERSION, "python", "py", trl.script, trl.mapped),
    Tool("verl", "verl", verl.VERSION, "bash", "sh", verl.script, verl.mapped),
    Tool("openrlhf", "OpenRLHF", openrlhf.VERSION, "bash", "sh", openrlhf.script, openrlhf.mapped),
    Tool("ms-swift", "ms-swift", ms_swift.VERSION, "bash", "sh", ms_swift.script, ms_swift.mapped),
)}


def tool(key: str) -> Tool:
    """The tool of that name. Raises LabError where there is none."""
    if key not in TOOLS:
        raise LabError(f"There is no tool {quoted(key)} to hand a run over to: {suggestion(key, list(TOOLS))}")
    return TOOLS[key]
