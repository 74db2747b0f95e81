"""Record the results of this lab's studies: `python -m labcore.exports.recorded_studies "KIND OF MACHINE" [STUDY…]`
writes `recorded.json`, the table of docs/studies.md and a capsule of each winner. For the lab's developers. Studies
without a result in this lab, or that are not among the named ones, stay unchanged.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path

from labcore.analysis.studies import plan, recorded, verdict
from labcore.analysis.studies.plan import Runs
from labcore.analysis.studies.recorded import Recorded
from labcore.analysis.studies.result import needed, result
from labcore.analysis.studies.rows import STUDIES
from labcore.analysis.studies.study import Contrast, Study
from labcore.analysis.studies.verdict import WORDS
from labcore.exports.capsules import packing
from labcore.runs import jobs
from labcore.runs.files.atomic import write_text
from labcore.runs.store.rows import RunRow
from labcore.runs.store.store import Store

DOCS = Path(__file__).parents[2] / "docs"
PAGE, CAPSULES = DOCS / "studies.md", DOCS / "studies"
BEGIN, END = "<!-- results: made by labcore.exports.recorded_studies -->", "<!-- end of results -->"


def keep(machine: str, *keys: str) -> list[str]:
    """Write the studies of these keys, or all; return the keys of those that have a result in this lab."""
    store, kept = Store(), dict(recorded.read())
    rows, found = store.sweep_runs()[::-1], []
    for key in keys or STUDIES:
        study = STUDIES[key]
        runs = plan.found(study, rows)
        if all(runs.finished().values()) and not runs.active:
            for spec in needed(study, runs):
                jobs.compute(spec)
            kept[key] = _recorded(store, study, runs, machine)
            found.append(key)
    ordered = {key: kept[key] for key in STUDIES if key in kept}
    texts = {key: each.to_json() for key, each in ordered.items()}
    write_text(recorded.FILE, json.dumps(texts, ensure_ascii=False, indent=1) + "\n")
    recorded.read.cache_clear()
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    write_text(PAGE, f"{before}{BEGIN}\n\n{table(ordered)}\n\n{END}{rest.partition(END)[2]}")
    return found


def _recorded(store: Store, study: Study, runs: Runs, machine: str) -> Recorded:
    found, ended = result(store, study, runs), max(each.ended or 0 for each in runs.counted)
    assert found is not None
    kept = {} if study.asks_model else _capsule(store, study, runs.of[study.winner][0])
    return recorded.of_result(found, date=time.strftime("%d %B %Y", time.gmtime(ended)).lstrip("0"), machine=machine,
                              runs=len(runs.counted), **kept)


def _capsule(store: Store, study: Study, row: RunRow) -> dict[str, str]:
    """Write the capsule of a run and return the fields that name it. Runs on a user's model get no capsule, because it
    would contain the model."""
    CAPSULES.mkdir(exist_ok=True)
    file = CAPSULES / f"{study.key}.capsule.zip"
    packing.write(store, row.id, file, light=packing.starts_anew(row.spec))
    return {"capsule": file.name, "run": row.id, "digest": digest(file)}


def digest(capsule: Path) -> str:
    """The SHA-256 of a capsule, in hex digits."""
    return hashlib.sha256(capsule.read_bytes()).hexdigest()


def table(kept: dict[str, Recorded]) -> str:
    """All studies as Markdown: a table of claims and verdicts, then each one's findings."""
    lines = ["| study | claim | setting | verdict | training | capsule |", "|---|---|---|---|---|---|"]
    for key, study in STUDIES.items():
        each = kept.get(key)
        link = f"[`{each.run}`](studies/{each.capsule})" if each and each.capsule else ""
        lines.append(f"| {study.title} | {study.claim} ({study.source}) | {study.setting} | "
                     + (f"**{WORDS[each.verdict]}** | {each.seconds / 60:.1f} min{_more(each)} | {link} |" if each
                        else "not run yet | | |"))
    parts = ["\n".join(lines)]
    for key, each in kept.items():
        study = STUDIES[key]
        rows = "\n".join(_line(contrast, each) for contrast in study.contrasts if contrast.label in each.findings)
        parts.append(f"### {study.title}\n\n{each.date}, {each.machine}.\n\n"
                     f"| contrast | measured | claimed | found, with its interval | |\n|---|---|---|---|---|\n{rows}")
    return "\n\n".join(parts)


def _more(each: Recorded) -> str:
    return f" ({each.runs} runs)" if each.runs else ""


def _line(contrast: Contrast, each: Recorded) -> str:
    found, said = each.findings[contrast.label]
    words = f"**{WORDS[said]}**" if contrast.decides else WORDS[said]
    return (f"| {contrast.label} | {contrast.measure.words} | {contrast.region} | "
            f"{verdict.interval_text(found, contrast.measure.digits)} {contrast.measure.unit} | {words} |")


if __name__ == "__main__":
    print(", ".join(keep(*sys.argv[1:])))
