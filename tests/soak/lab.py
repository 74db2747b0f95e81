"""A lab without a page: starts the runs that its arguments describe in JSON, then waits until its input ends."""

import json
import sys

from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.workers.launcher import Launcher

if __name__ == "__main__":
    lab = Launcher(Store())
    for given in sys.argv[1:]:
        lab.start(make(**json.loads(given)))
    sys.stdin.read()
    lab.close()
