"""How a module of commands adds them to the parser: by `add(name, command, help)`, which returns the command's own."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable

Command = Callable[[Namespace], int]  # returns the exit status
Add = Callable[[str, Command, str], ArgumentParser]
