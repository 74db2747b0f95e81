"""Turn faults of the store's database into one sentence that says what to do."""

from __future__ import annotations

import re

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from labcore.errors import LabError, first_line
from labcore.runs.store.dialects import BUSY_SECONDS, shown

DAMAGED = ("The store {where} is damaged ({what}): put back a copy of it, or move it away to begin with an empty one; "
           "the folders of its runs stay.")
# How SQLite or another database words a fault, or SQLite's name of it; then the sentence. The first that fits counts.
_FAULTS = tuple((re.compile(words), sentence) for words, sentence in (
    # The shared memory of the log, 32 kB, finds no room: SQLite only says that it is an I/O error.
    ("full|no space|sqlite_ioerr_shmsize",
     "The disk that holds {where} is full: free some space, then resume the run."),
    (r'authentication failed|no password supplied|no pg_hba\.conf entry|role ".*" (does not exist|is not permitted)',
     "The database {where} refused the login: check the user and the password in RL_LAB_STORE."),
    ("too many clients|connection slots are reserved",
     "The database server of {where} has no free connection: raise its max_connections, or run fewer runs at once "
     "(RL_LAB_MAX_RUNS)."),
    ("connection to server .* failed|connection timeout expired|failed to resolve host|the connection is lost|"
     "server closed the connection|terminating connection due to|the database system is (starting up|shutting down)",
     "The database server of {where} cannot be reached ({what}): check that it runs and that RL_LAB_STORE names it, "
     "then try again."),
    ("read-only transaction", "The database {where} is read-only: set RL_LAB_STORE to one that can be written."),
    ("permission denied for",
     "The database {where} does not grant its user enough ({what}): let the owner of the tables grant it, as "
     "deploy/readonly.sql does for a lab that is shared for reading."),
    ("value too long for",
     "The database {where} does not take a name or a text of that length ({what}): give a shorter one."),
    ("disk i/o error",
     "The store {where} could not be read or written ({what}): check that its disk has room and is still connected, "
     "then try again."),
    ("locked|lock timeout",
     f"The store {{where}} was busy for more than {BUSY_SECONDS} s: close other programs that write to it, then try "
     "again."),
    ("not a database", "The file {where} is not a readable store: move it away, or set RL_LAB_HOME to another folder."),
    ("malformed|could not decode|no such table|no such column", DAMAGED),
    ("unable to open|readonly", "The store {where} cannot be opened for writing: check its folder's permissions, or "
                                "set RL_LAB_HOME to another folder."),
))
_ELSE = "The store {where} cannot be used now ({what}): check that it is there and can be reached, then try again."


def in_words(error: DBAPIError, url: str) -> Exception:
    """The LabError for a fault that the user can mend; a fault of the lab's own as it is."""
    text = f"{getattr(error.orig, 'sqlite_errorname', '')} {error.orig}".lower()
    sentence = next((sentence for words, sentence in _FAULTS if words.search(text)), None)
    if sentence is None and "sqlite_error " in text:  # the SQL itself is wrong
        return error
    if sentence is None and not isinstance(error, (OperationalError, InterfaceError)):
        return error
    what = first_line(error.orig) if isinstance(error.orig, Exception) else ""
    return LabError((sentence or _ELSE).format(where=shown(url), what=what))


def damaged(url: str, what: str) -> LabError:
    """The store at `url` does not hold what the lab wrote: `what` is wrong, in a few words."""
    return LabError(DAMAGED.format(where=shown(url), what=what))
