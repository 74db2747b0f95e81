"""Record the small pictures of the lessons: `python -m docs.record_lessons [LESSON…]` makes the runs of those whose
picture is missing or out of date, some minutes each, and writes them beside the lessons' texts."""

from __future__ import annotations

import json
import sys

from labcore.analysis.lessons import course as courses
from labcore.analysis.lessons import folders, recorded
from labcore.analysis.lessons.expression import Logged
from labcore.analysis.lessons.lesson import Lesson
from labcore.analysis.lessons.verdict import judge
from labcore.errors import LabError
from labcore.runs.files import atomic, bases
from labcore.runs.presets import unwatched
from labcore.runs.spec.run_spec import RunSpec, base_spec
from labcore.workers.worker import start_session


def main(names: list[str]) -> None:
    """Record the named lessons, or all that have no picture."""
    for lesson in folders.built_in():
        if lesson.name in names or not (names or recorded.recorded(lesson)):
            record(lesson)


def record(lesson: Lesson) -> None:
    """Run a lesson and write its picture. Its claim must hold, as it does for the readers."""
    runs = {setup.name: [logged(setup.at(seed)) for seed in lesson.seeds] for setup in lesson.setups}
    if (verdict := judge(lesson.check, runs)).says != "holds":
        raise LabError(f"The claim of the lesson {lesson.name} does not hold here: correct the lesson first. {verdict}")
    kept = json.loads(recorded.FILE.read_text("utf-8")) if recorded.FILE.exists() else {}
    kept[lesson.name] = {"runs": recorded.digest(lesson), "curves": recorded.curves(lesson, runs)}
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in sorted(kept.items()))
    atomic.write_text(recorded.FILE, f"{{\n{text}\n}}\n")
    print(f"{lesson.name}: recorded")


def logged(spec: RunSpec) -> Logged:
    """The rows of a run, driven without a store and with nobody to look at it."""
    spec = unwatched(spec)
    base = base_spec(spec)
    folder = bases.SHIPPED / base.hash() / "model" if base else None
    return courses.logged([each for each in start_session(spec, folder, None).run() if each is not None])


if __name__ == "__main__":
    main(sys.argv[1:])
