"""Environments in a module of the user's own: `module:Env-v0`.

A module is code, so only the owner of the lab names one: by `--env` on the command line, or in the file
`environments.json` of RL_LAB_HOME, {"module": "folder"}. A run, a link, an upload, a capsule and a text field of a page
hold only the name, and a name that is not in this file is refused. Worker processes find the module by its folder.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import gymnasium as gym

from labcore.errors import LabError, quoted
from labcore.runs.files import atomic, untrusted
from labcore.runs.files.paths import ENVIRONMENTS, check_writable, home, made
from labcore.tasks.own_reward import blamed, quietly

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def named(env_id: str) -> tuple[str, str]:
    """The module of an id, empty where it has none, and the id that it registers.

    >>> named("mine.envs:Own-v0"), named("ALE/Pong-v5")
    (('mine.envs', 'Own-v0'), ('', 'ALE/Pong-v5'))
    """
    module, colon, registered = env_id.partition(":")
    return (module, registered) if colon else ("", env_id)


def allowed() -> dict[str, str]:
    """The modules that this lab may import, each with its folder; an empty folder means that the module is
    installed."""
    path = home() / ENVIRONMENTS
    if not path.is_file():
        return {}
    found = untrusted.read_json(path)
    if not isinstance(found, dict) or not all(isinstance(folder, str) for folder in found.values()):
        raise LabError(f"{path} does not name modules with their folders: correct it, for example "
                       '{"my_module": "/home/me/project"}.')
    return found


def allow(env_id: str) -> None:
    """Have this lab import the module of an id from now on. Only the command line calls this. Raises LabError if the id
    names no module, it cannot be imported, or the lab is shared for reading."""
    module, registered = named(env_id)
    if not module:
        return
    check_writable()
    if not _MODULE.fullmatch(module):
        raise LabError(f"{quoted(module)} is not the name of a Python module: write for example "
                       "--env my_module:MyEnv-v0.")
    folder = str(Path.cwd())
    _import(module, folder)
    if registered not in gym.registry:
        raise LabError(f"The module {module} registers no environment {quoted(registered)}: give the id of its "
                       f'gymnasium.register("{registered}", …).')
    file = getattr(sys.modules[module], "__file__", None)
    installed = not file or not Path(file).resolve().is_relative_to(Path(folder).resolve())
    known = allowed() | {module: "" if installed else folder}
    atomic.write_text(made(home()) / ENVIRONMENTS, json.dumps(known, indent=1, sort_keys=True))


def load(env_id: str) -> str:
    """Import the module that an id names. Returns the id under which Gymnasium knows the environment. Raises LabError
    if the owner of this lab has not allowed the module, or it cannot be imported."""
    module, registered = named(env_id)
    if module:
        known = allowed()
        if module not in known:
            raise LabError(f"This lab does not import the module {quoted(module)}: start a run with --env {env_id} on "
                           f"the command line, or name the module in {home() / ENVIRONMENTS}.")
        _import(module, known[module])
    return registered


def _import(module: str, folder: str) -> None:
    """Import a module that lies in `folder`; nothing in that folder takes the place of a library."""
    if module in sys.modules:
        return
    if folder and folder not in sys.path:
        sys.path.append(folder)
    with quietly(), blamed(f"The module {module} cannot be imported (", "): correct it, or start the command in the "
                           "folder that it lies in."):
        importlib.import_module(module)
