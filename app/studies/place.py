"""The link parameters of the Studies page: the open study."""

from __future__ import annotations

from dataclasses import dataclass

from app import link
from app.link import param
from labcore.analysis.studies.rows import STUDIES


@dataclass(frozen=True)
class Place:
    """One study; all of them where `study` is empty."""

    study: str = param("", link.one_of(STUDIES))
