"""The sentences for errors of the Hugging Face hub's client, the same for datasets and models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from labcore.errors import LabError, os_reason, quoted

SITE = "https://huggingface.co"
REFUSED = (401, 403)
LOG_IN = "log in with: hf auth login"


class Unreachable(LabError):
    """The hub cannot be asked at all."""


@dataclass(frozen=True)
class Repo:
    """A repository of the hub in sentences: `kind` is "model" or "dataset", `instead` what the user can do without the
    hub, `spelling` how its name is written, `place` the folder it is kept in, which the variable `setting` names."""

    name: str
    kind: str
    instead: str
    place: str
    setting: str
    spelling: str = ""

    @property
    def page(self) -> str:
        """Its page on the hub, where terms are accepted."""
        return f"{SITE}/{'' if self.kind == 'model' else f'{self.kind}s/'}{self.name}"


@contextmanager
def errors_in_words(repo: Repo) -> Iterator[None]:
    """Turn what the hub's client raises about a repository into sentences.

    Raises:
        Unreachable: the hub cannot be reached, or cannot answer now.
        LabError: there is no such repository, it is not open to the user, or it cannot be kept here.
    """
    from huggingface_hub import errors

    try:
        yield
    except LabError:
        raise
    except Exception as caught:  # every layer below has its own errors, from OSError to those of the HTTP client
        error = _cause(caught)
        if isinstance(error, errors.GatedRepoError):
            raise LabError(f"The {repo.kind} {repo.name} is gated: accept its terms on {repo.page}, then {LOG_IN} (or "
                           "set HF_TOKEN).") from caught
        if isinstance(error, errors.RepositoryNotFoundError | errors.HFValidationError):
            raise LabError(f"The hub has no {repo.kind} {quoted(repo.name)} that is open to you: check the spelling"
                           f"{repo.spelling}, {repo.instead}, or {LOG_IN}.") from caught
        if isinstance(error, errors.OfflineModeIsEnabled):
            raise Unreachable(f"HF_HUB_OFFLINE is set, so {repo.name} cannot be downloaded: unset it, or "
                              f"{repo.instead}.") from caught
        answer = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError):
            raise LabError(f"The {repo.kind} {repo.name} cannot be kept in {repo.place} ({os_reason(error)}): free "
                           f"some space, or set {repo.setting} to a folder that you may write to.") from caught
        if answer is not None:
            do = f"{LOG_IN}," if answer in REFUSED else "try again later,"
            raise Unreachable(f"The hub refused to send {repo.name} (HTTP {answer}): {do} or {repo.instead}."
                              ) from caught
        raise Unreachable(f"The hub could not be reached for {repo.name} ({type(error).__name__}): connect to the "
                          f"network, or {repo.instead}.") from caught


def _cause(error: BaseException) -> BaseException:
    """The error below: the client says "not in the cache" where it could not ask."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    while isinstance(error, LocalEntryNotFoundError) and error.__cause__:
        error = error.__cause__
    return error
