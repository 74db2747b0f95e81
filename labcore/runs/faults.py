"""Map an exception to the last state of a run and one sentence that says why."""

from __future__ import annotations

import errno
import os
import platform
import traceback

from labcore.errors import Diverged, LabError, os_reason
from labcore.runs.files.paths import home, log_file, run_folder

# Errors of a disk that is gone, broken or read-only.
UNWRITABLE = (errno.EACCES, errno.EIO, errno.ENODEV, errno.ENOTCONN, errno.ENXIO, errno.EPERM, errno.EROFS,
              errno.ESTALE)


class Ended(Exception):
    """The run ends here as requested: in `state`, for the reason given."""

    def __init__(self, state: str, message: str):
        self.state = state
        super().__init__(message)


def ending(error: BaseException, run_id: str, step: int) -> tuple[str, str]:
    """The state and the message of a run that `error` ended after `step` steps.

    An unexpected error is written to the run's log in full, and so is an error of a file that cannot be written or
    read.
    """
    if isinstance(error, Ended):
        return error.state, str(error)
    if isinstance(error, LabError):
        return "diverged" if isinstance(error, Diverged) else "failed", str(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", f"The run was interrupted at step {step}: resume it from its last checkpoint."
    if disk_full(error):
        return "failed", f"The disk that holds {home()} is full (step {step}): free some space, then resume the run."
    if out_of_memory(error):
        return "failed", (f"The run ran out of memory after step {step}: use a smaller model, a smaller batch (prompts "
                          "or group size) or a shorter length limit.")
    if isinstance(error, OSError) and error.errno in UNWRITABLE:
        message = (f"{error.filename or run_folder(run_id)} cannot be written or read after step {step} "
                   f"({os_reason(error)}): check its disk and its permissions, then resume the run.")
    else:
        what = next(iter(str(error).splitlines()), "").rstrip(".")[:300]
        message = f"Something in the lab broke: {type(error).__name__}: {what}."
    log = log_file(run_id)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            traceback.print_exception(error, file=file)
    except OSError:  # the run must end with a message even so
        return "failed", message
    return "failed", f"{message} The details are in its log, {log} on {platform.node()}"


def disk_full(error: BaseException) -> bool:
    """True if a file could not be written for want of space. safetensors and shutil say so only in words."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return any(os.strerror(number).lower() in str(error).lower() for number in (errno.ENOSPC, errno.EDQUOT))


def no_room() -> str:
    """The sentence for a full disk. It may be the disk of temporary files or of the output."""
    return f"A disk is full, most likely the one that holds {home()}: free some space, then try again."


def out_of_memory(error: BaseException) -> bool:
    """True if memory ran out, the machine's or the GPU's. Compares the error's name, as torch is not imported."""
    text = str(error).lower()
    return (isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
            or (isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text)))


def no_process(error: OSError, seconds: float) -> str:
    """The message of a run for which no process could be started; the lab tries again after `seconds`."""
    where = f": {error.filename}" if error.filename else ""
    return (f"waiting for a process: none could be started ({os_reason(error)}{where}); the lab tries again "
            f"every {seconds:.0f} s: let other runs or programs end, or free some space")


def not_started(error: LabError | OSError) -> str:
    """The sentence on why no process could be started, and what to do."""
    if isinstance(error, LabError):
        return str(error)
    return (f"No process could be started for this ({os_reason(error)}): let other runs or programs end, or "
            "free some space, then try again.")
