"""The options --env and --env-arg: an environment of Gymnasium, or of the user's own module, with its arguments."""

from __future__ import annotations

import argparse

from labcore.errors import LabError

KIND = "cartpole"


def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of a command that makes runs."""
    sub.add_argument("--env", metavar="ID", help="an environment of Gymnasium, such as Pendulum-v1, or MODULE:ID from "
                     "a Python module of your own, which this lab may import from then on; means --kind cartpole")
    sub.add_argument("--env-arg", action="append", default=[], metavar="NAME=VALUE", dest="env_args", help="an "
                     "argument of the environment, such as is_slippery=false; may be repeated")


def take(options: argparse.Namespace) -> None:
    """Put the environment and its arguments into the options `kind`, `task` and `knobs`. Raises LabError if the options
    do not go together, or the module cannot be imported."""
    if options.env is not None:
        if options.kind not in (None, KIND) or options.task is not None:
            other = "--task" if options.task is not None else f"--kind {options.kind}"
            raise LabError(f"--env and {other} cannot be given together: --env names the environment of a run of the "
                           f"kind {KIND}, so leave {other} out.")
        from labcore.classic.envs import own_modules  # Gymnasium, and the user's module

        own_modules.allow(options.env)
        options.kind, options.task = KIND, options.env
    if options.env_args:
        if options.kind != KIND:
            raise LabError(f"--env-arg is for environments of Gymnasium: add --env ID or --kind {KIND}.")
        from labcore.classic.envs import arguments

        found = dict(map(arguments.one, options.env_args))
        options.knobs = [f"env_args={arguments.written(found)}", *options.knobs]
