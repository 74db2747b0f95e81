"""The Ray actor that starts the worker of a run on a machine of the cluster and holds its lifeline.

The worker is a process of its own, as everywhere. Ray sends this module to its machines as it is, so it may use only
the standard library until it has looked for the lab there.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

# The worker's parent is a shell: Ray kills the children of what it ends, at once, but not their children. The worker
# sees the end of its lifeline and checkpoints. What it prints goes to its log, and its pid to the carrier.
_HOLD = 'exec 3<&0; "$@" <&3 3<&- >&2 & echo $!; wait $!'  # 3: what runs beside a shell does not get its input


class Carrier:
    """Carries `run_id`: the worker is `command`, run by this machine's Python with more in its `environment`.

    `lab` is the machine of the lab, `root` the folder of its code, which may be here as well.
    """

    def __init__(self, run_id: str, command: Sequence[str], root: str, environment: Mapping[str, str], lab: str):
        self._run_id, self._command, self._lab = run_id, command, lab
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        # Where files go through an object store, a machine may have its home elsewhere than the lab has.
        own = os.environ.get("RL_LAB_HOME") if environment.get("RL_LAB_ARTIFACTS") else None
        os.environ.update({**environment, "PYTHONPATH": path, **({"RL_LAB_HOME": own} if own else {})})
        sys.path.insert(0, root)
        self._shell: subprocess.Popen[bytes]
        self._pid: int

    def start(self) -> dict[str, Any]:
        """Start the worker, unless the run is no longer wanted: its `began` and `node`, else the `ended` of it."""
        try:
            from labcore.errors import LabError
            from labcore.runs.files.paths import log_file
            from labcore.workers.executors import node
        except ImportError as error:
            return {"ended": {"fault": f"The machine {platform.node()} of the Ray cluster has no lab that works "
                                       f"({error}): install its code and what requirements.txt names there, then "
                                       "resume the run."}}
        try:
            if not node.wanted(self._run_id, self._lab):
                return {"ended": {}}
        except LabError as error:
            return {"ended": {"fault": str(error)}}
        with log_file(self._run_id).open("ab") as log:
            self._shell = subprocess.Popen(["/bin/sh", "-c", _HOLD, "sh", sys.executable, *self._command, self._run_id],
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                           start_new_session=True)
        assert self._shell.stdout
        self._pid = int(self._shell.stdout.readline())
        import ray

        return {"began": (self._pid, platform.node()), "node": ray.get_runtime_context().get_node_id()}

    def wait(self) -> int:
        """The exit code of the worker once it has ended, negative where a signal ended it."""
        code = self._shell.wait()
        return 128 - code if code > 128 else code

    def cut(self, seconds: float) -> None:
        """Cut the worker's lifeline, and kill it where it has not ended after so many seconds."""
        assert self._shell.stdin
        self._shell.stdin.close()
        try:
            self._shell.wait(seconds)
        except subprocess.TimeoutExpired:
            os.kill(self._pid, signal.SIGKILL)
