"""The protocol `add(name, command, help)`, by which a module adds its commands to the parser. It returns the command's
parser."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable

Command = Callable[[Namespace], int]  # returns the exit status
Add = Callable[[str, Command, str], ArgumentParser]
