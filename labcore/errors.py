"""Errors that speak to the person at the keyboard."""


class LabError(Exception):
    """Something the user can mend. The message is one sentence: what is wrong, where, what to do."""


class NoSuchRun(LabError):
    """The store holds no run of that name: it was deleted, or is another lab's."""


class Diverged(LabError):
    """The loss, its gradient or a table stopped being a finite number; `step` is where, counted from 1."""

    def __init__(self, step: int, what: str, remedy: str = "a lower learning rate, or a smaller clip range"):
        self.step = step
        super().__init__(f"The {what} was not a finite number at step {step}: resume from the last good checkpoint "
                         f"with {remedy}.")


def first_line(error: Exception) -> str:
    """What an error of others says first, to stand within a sentence of ours: without its capital and its full stop."""
    line = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
    return line[:1].lower() + line[1:]
