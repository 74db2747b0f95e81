"""The command `watch`: read the logs of another trainer, and show its runs in the lab while it trains."""

from __future__ import annotations

import argparse
import time
from typing import Any

from labcore.catalog.kinds import WATCH
from labcore.cli.adding import Add
from labcore.cli.keeping import lines
from labcore.errors import LabError
from labcore.runs.files.paths import check_writable, path_of
from labcore.runs.lists.all_runs import Shelf
from labcore.runs.store.store import Store
from labcore.watch.following.follower import Follower

LOOK_SECONDS = 1.0


def add_to(add: Add) -> None:
    """Add the command to the parser by its `add(name, command, help)`."""
    sub = add("watch", watch, "show the runs of another trainer live, from its logs: verl, TRL, "
              "OpenRLHF, ms-swift, prime-rl, Stable-Baselines3, TensorBoard, W&B offline, Trackio, CSV, JSON lines")
    sub.add_argument("folders", nargs="*", metavar="DIR", help="a folder that a trainer writes its logs to; without a "
                     "folder, list the watched runs")
    sub.add_argument("--once", action="store_true", help="read the existing files, then exit")
    sub.add_argument("--url", help="send to the lab at this address, not to the lab on this machine")
    sub.add_argument("--token", help="the token of that lab (RL_LAB_WATCH_TOKEN)")


def watch(options: argparse.Namespace) -> int:
    """Follow folders until Ctrl+C, or read them once; without a folder list the watched runs."""
    if not options.folders:
        return list_watched()
    check_writable()
    connect: dict[str, Any] = {"url": options.url, "token": options.token}
    folders = dict.fromkeys(path_of(word).absolute() for word in options.folders)
    if options.once and (missing := [path for path in folders if not path.is_dir()]):
        raise LabError(f"There is no folder {missing[0]}: check the path, or remove --once to wait for it.")
    followers = [Follower(path, lambda sentence: print(sentence, flush=True), connect) for path in folders]
    if options.once:
        found = [follower.look(last=True) for follower in followers]
        for follower in followers:
            follower.finish()
        if not any(found):
            print("No new data.")
        return 0
    try:
        while True:
            for follower in followers:
                follower.look()
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        return 0
    finally:
        for follower in followers:
            follower.close()


def list_watched() -> int:
    """Print the watched runs, and how to send another one."""
    store = Store()
    store.reconcile()
    if entries := [entry for entry in Shelf(store).entries() if entry.kind == WATCH.key]:
        print("\n".join(lines(store, entries)))
    else:
        print("No watched runs yet.")
    print("To watch a trainer, run rl-lab watch DIR with its output folder, or use labcore/watch/client.py in its "
          "script: see docs/watch.md.")
    return 0
