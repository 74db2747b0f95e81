"""What trains gives way to the page that shows it, or the first chart of a page waits for all runs."""

from __future__ import annotations

import os
import time
from pathlib import Path

NICENESS = 10
AUTOGROUP = Path("/proc/self/autogroup")
TRIES, PAUSE = 20, 0.1  # the kernel takes one change in a tenth of a second


def give_way() -> None:
    """Lower the priority of this process, which has a session of its own, by `NICENESS`.

    Linux first shares the cores between sessions (sched(7), "The autogroup feature"), and what is nice within one gets
    no less of them: so the session has to be made nice too. Where that cannot be done (another system, a container that
    forbids it), the process trains with the niceness alone.
    """
    os.nice(NICENESS)
    for _ in range(TRIES):
        try:
            AUTOGROUP.write_text(str(NICENESS))
            return
        except BlockingIOError:
            time.sleep(PAUSE)
        except OSError:
            return
