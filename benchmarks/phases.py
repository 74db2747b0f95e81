"""How long the phases of the lab's step take on a GPU: `with timed(turn): ...` around a session's run.

The device is waited for at the end of each phase, so a step takes some milliseconds longer than without.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

# What a step calls, by module and name, and how the phase is called.
PHASES = {("labcore.llm.experience", "generate"): "sampling",
          ("labcore.llm.static_decoder", "StaticDecoder.run"): "decoding",
          ("labcore.llm.experience", "reward"): "rewards",
          ("labcore.llm.experience", "reference_logprobs"): "reference",
          ("labcore.llm.loops.online", "gradients"): "gradients",
          ("labcore.llm.loops.online", "step"): "optimizer"}


@contextmanager
def timed(note: Callable[[str, float], None]) -> Iterator[None]:
    """Inside, `note` is told the name of each phase that ends, and its seconds."""
    from pkgutil import resolve_name

    with ExitStack() as stack:
        for (module, name), phase in PHASES.items():
            stack.enter_context(patch(f"{module}.{name}", _timed(resolve_name(f"{module}:{name}"), phase, note)))
        yield


def _timed(function: Callable[..., Any], phase: str, note: Callable[[str, float], None]) -> Callable[..., Any]:
    import torch

    def run(*args: Any, **kwargs: Any) -> Any:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        result = function(*args, **kwargs)
        torch.cuda.synchronize()
        note(phase, time.perf_counter() - begun)
        return result
    return run
