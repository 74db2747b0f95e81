"""One lesson: the claim and its question, the prediction, the runs, the verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from app import theme
from app.compare.place import Place as ComparePlace
from app.components.compare_chart import CHART, compare_chart
from app.lab import errors_shown, in_words, lab
from app.lessons import curves, words
from app.lessons.pictures import picture
from app.lessons.place import go, write
from app.link import written
from app.naming import apart, message
from app.session import page_of, show_error
from app.status import STATES
from app.tokens import literal
from app.training import files
from labcore.analysis.lessons import course as courses
from labcore.analysis.lessons import folders, progress
from labcore.analysis.lessons.course import Course
from labcore.analysis.lessons.lesson import Lesson
from labcore.analysis.lessons.progress import Attempt
from labcore.analysis.lessons.verdict import Verdict
from labcore.catalog.kinds import KINDS
from labcore.errors import LabError
from labcore.runs.files.paths import read_only
from labcore.runs.store.rows import RESUMABLE
from labcore.runs.titles import title

EVERY = 1.0  # seconds between two looks at runs that go
FOUNDATIONS = Path(__file__).parents[2] / "pages" / "foundations.py"


def show(lesson: Lesson, following: Lesson | None) -> None:
    """The whole lesson."""
    CHART.warm()
    attempt = progress.newest(lesson.name)
    found = _course(lesson, attempt)
    with st.container(horizontal=True, gap="small"):
        st.button("All lessons", icon=":material/arrow_back:", key="lesson:all", type="tertiary", on_click=go)
        if lesson.own:
            _own(lesson)
    left, right = st.columns([1, 1.35], gap="large")
    with left:
        _head(lesson)
        if attempt is not None:
            st.markdown(f"**The claim.** {lesson.claim}")
        with st.container(border=True, key="lesson_question"):
            _question(lesson, attempt)
        _about(lesson, attempt is not None)
    with right:
        if found is None or attempt is None:
            _before(lesson)
        else:
            st.fragment(_runs, run_every=EVERY if found.active else None, key="lesson_runs")(lesson, found.active)
    if following is not None:
        ended = attempt is not None and words.done([attempt])
        (right if ended else left).button(
            f"Next: {literal(following.title)}", icon=":material/arrow_forward:", key="lesson:next",
            type="primary" if ended else "tertiary", on_click=go, args=(following.name,))


def _own(lesson: Lesson) -> None:
    """The buttons that edit and download the user's own lesson."""
    st.button("Edit", icon=":material/edit:", key="lesson:edit", type="tertiary", on_click=write, args=(lesson.name,),
              disabled=read_only())
    st.download_button("Download", folders.text_of(lesson.name), f"{lesson.name}.md", "text/markdown", type="tertiary",
                       icon=":material/download:", key="lesson:download", on_click="ignore",
                       help="One file to hand out. Others open it under “Write a lesson” with “Open a file”.")


def preview(lesson: Lesson) -> None:
    """The lesson as its readers see it, for its author: all at once, and nothing can be answered."""
    _head(lesson)
    st.markdown(f"**Your prediction.** {lesson.question}")
    if lesson.drawn is None:
        st.radio("Prediction", lesson.choices, index=lesson.right, disabled=True, label_visibility="collapsed",
                 captions=["right" if place == lesson.right else "" for place in range(len(lesson.choices))])
    else:
        st.caption("Readers draw a curve here.")
    st.divider()
    st.caption("After the prediction and the runs")
    st.markdown(f"**The claim.** {lesson.claim}")
    _about(lesson, predicted=True)
    st.markdown(lesson.explanation)


def _head(lesson: Lesson) -> None:
    """The title, and the situation before the question."""
    with st.container(key="lesson_head", gap="xsmall"):
        hour = folders.FIRST_HOUR
        path = f"First hour, lesson {hour.index(lesson.name) + 1} of {len(hour)} · " if lesson.name in hour else ""
        st.caption(f"{path}{literal(lesson.topic)} · {lesson.minutes} minutes")
        st.header(literal(lesson.title), anchor=False)
    if lesson.introduction:
        with st.container(key="lesson_introduction"):
            st.markdown(lesson.introduction)


def _course(lesson: Lesson, attempt: Attempt | None) -> Course | None:
    """The runs of the newest attempt; None where there are none, or no longer."""
    if attempt is None or not attempt.sweep:
        return None
    try:
        return courses.course(lab().store, lesson, attempt.sweep)
    except LabError:  # deleted, or of an earlier version of the lesson: the page offers to run it again
        return None


def _about(lesson: Lesson, predicted: bool) -> None:
    """The runs and the source; the check only once there is a prediction: before, it would give the answer away."""
    with st.expander(words.size(lesson)):
        for setup in lesson.setups:
            spec = setup.spec
            setting = f"{spec.row.label} {spec.task} {apart(spec)}".rstrip()
            st.markdown(f"**{literal(setup.label)}**: {literal(setting)}, {spec.steps:,} steps")
        if predicted:
            st.markdown("Checks, for each seed and then over all seeds:")
            st.markdown("\n".join(f"- {literal(sentence)}" for sentence in words.sentences(lesson)))
    st.caption(f"Source: {literal(lesson.source)}")


# ---- the prediction --------------------------------------------------------------------------------------------


def _question(lesson: Lesson, attempt: Attempt | None) -> None:
    st.markdown(f"**Your prediction.** {lesson.question}")
    if attempt is None:
        _ask(lesson)
        return
    if attempt.choice is not None and 0 <= attempt.choice < len(lesson.choices):
        st.radio("Your prediction", lesson.choices, index=attempt.choice, disabled=True, label_visibility="collapsed",
                 key=f"predicted:{lesson.name}:{attempt.at}")
    elif lesson.drawn is not None:
        curves.sheet(lesson, attempt.curve, fixed=True)
    st.caption("Locked when the runs were started.")
    if _course(lesson, attempt) is None:
        st.info("The runs of this prediction are gone or were not started." if not attempt.says else
                f"{words.state([attempt])[1]}. Its runs were deleted, or the lesson has changed since.",
                icon=":material/info:")
        if attempt.says:
            _again(lesson)
        else:
            st.button("Start the runs", type="primary", icon=":material/play_arrow:", key="lesson:start",
                      disabled=read_only(), on_click=_try, args=(_start, lesson))
            st.button("Predict again", key="lesson:back", disabled=read_only(), on_click=_try, args=(_anew, lesson))


def _ask(lesson: Lesson) -> None:
    """The choices or the sheet to draw on, and the button that locks the answer and starts the runs."""
    choice: int | None = None
    curve: curves.Curve = ()
    if lesson.drawn is not None:
        curve = curves.sheet(lesson, ())
    else:
        answer = st.radio("Your prediction", lesson.choices, index=None, label_visibility="collapsed",
                          key=f"choice:{lesson.name}")
        choice = lesson.choices.index(answer) if answer in lesson.choices else None
    ready = choice is not None or bool(curve)
    st.button("Lock my prediction and run", type="primary" if ready else "secondary", icon=":material/play_arrow:",
              key="lesson:run", disabled=not ready or read_only(), on_click=_try,
              args=(_predict, lesson, choice, curve),
              help="You cannot change the answer afterwards. The runs start at once.")
    st.caption("The runs also appear on the page Runs.")


def _predict(lesson: Lesson, choice: int | None, curve: curves.Curve) -> None:
    progress.predict(lesson.name, choice, curve)
    _start(lesson)


def _start(lesson: Lesson) -> None:
    progress.begin(lesson.name, courses.start(lab().store, lesson))
    lab().launcher.wake()


def _try(do: Callable[..., Any], *args: Any) -> None:
    try:
        do(*args)
    except LabError as error:
        show_error(str(error))


def _before(lesson: Lesson) -> None:
    with st.container(border=True, key="lesson_before"):
        if not lesson.own:
            st.html(picture(lesson, whole=False, ground=theme.ground()))
        st.markdown(":material/lock: Curves and verdict appear here after your prediction.")
        st.caption("A guess is enough. Your prediction stays beside the result.")


# ---- the runs and the verdict ----------------------------------------------------------------------------------


@errors_shown()
def _runs(lesson: Lesson, was_active: bool) -> None:
    """Curves and state; while the runs go it is drawn again and again."""
    try:
        _stand(lesson, was_active)
    except LabError as error:  # the store or the progress cannot be read or written now
        st.error(in_words(error), icon=":material/error:")


def _stand(lesson: Lesson, was_active: bool) -> None:
    attempt = progress.newest(lesson.name)
    found = _course(lesson, attempt)
    if found is None or attempt is None or found.active != was_active:
        st.rerun()
        return
    if found.active:
        st.html(words.going(found))
    elif found.broken:
        _broken(lesson, found)
    else:
        _judged(lesson, found, attempt)
    compare_chart(curves.payload(found, () if found.active else attempt.curve), "lesson_curves",
                  on_resync=lambda: None)
    if not found.active:
        _completions(lesson, found)
        st.markdown(lesson.explanation)
        _links(found)


def _completions(lesson: Lesson, found: Course) -> None:
    """The last completions of the run that the lesson names."""
    setup = next((setup for setup in lesson.setups if setup.name == lesson.completions), None)
    row = next(iter(found.of(setup)), None) if setup else None
    step = max(files.steps_of(row.id, "samples"), default=0) if row else 0
    samples = files.read(row.id, "samples", step) if row and step else None
    if setup is None or not samples:
        return
    st.markdown(f"**Completions of “{literal(setup.label)}” at step {step}**; incorrect ones that earned a reward are "
                "listed first")
    st.html(words.completions_table(samples))


def _broken(lesson: Lesson, found: Course) -> None:
    """Runs that did not finish give no verdict."""
    first = found.broken[0]
    st.warning(literal(f"{title(first)}: {STATES[first.state][1].lower()}. {message(first)}"),
               icon=":material/error:")
    with st.container(horizontal=True, gap="small"):
        if any(row.state in RESUMABLE for row in found.broken):
            st.button("Resume", icon=":material/play_arrow:", key="lesson:resume", disabled=read_only(),
                      on_click=_try, args=(_resume, found))
        st.button("Predict again", key="lesson:again", disabled=read_only(), on_click=_try,
                  args=(_anew, lesson))


def _resume(found: Course) -> None:
    for row in found.broken:
        lab().launcher.resume(row.id)


def _judged(lesson: Lesson, found: Course, attempt: Attempt) -> None:
    try:
        verdict = courses.verdict(lab().store, found)
    except LabError as error:
        st.error(in_words(error), icon=":material/error:")
        _again(lesson)
        return
    if verdict is None:
        st.warning("Some runs of this lesson were deleted, so no seed has all of its runs and there is no verdict. "
                   "The page Runs can restore deleted runs for a week.", icon=":material/error:")
        _again(lesson)
        return
    right = words.prediction_correct(lesson, verdict, attempt)
    if not read_only() and (attempt.says, attempt.right, attempt.seeds) != (verdict.says, right, verdict.seeds):
        progress.settle(lesson.name, verdict.says, right, verdict.seeds)
    st.html(words.headline(verdict, found))
    st.markdown(words.beside(lesson, verdict, attempt) or curves.beside(lesson, found, attempt))
    st.html(words.table(lesson, verdict))
    _more(lesson, verdict, found)


def _more(lesson: Lesson, verdict: Verdict, found: Course) -> None:
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        if found.next_seed is not None:
            st.button("One more seed", icon=":material/add:", key="lesson:seed", disabled=read_only(),
                      on_click=_try, args=(_seed, found),
                      type="primary" if verdict.says == "close" else "secondary",
                      help="Repeats every run of this lesson with another seed, then computes the verdict again.")
        _again(lesson)
        with st.popover("Each seed"):
            st.html(words.seeds(verdict, found))
            st.caption("Margin: left side minus right side, for each seed; between two logarithms, a factor. "
                       "Interval: Student's t for the mean over seeds. The check:")
            st.code(lesson.check.text, language=None, wrap_lines=True)


def _again(lesson: Lesson) -> None:
    st.button("Repeat this lesson", icon=":material/restart_alt:", key="lesson:anew", disabled=read_only(),
              on_click=_try, args=(_anew, lesson), help="A new prediction and new runs. The earlier attempt is kept.")


def _anew(lesson: Lesson) -> None:
    progress.anew(lesson.name)
    st.session_state.pop(f"choice:{lesson.name}", None)


def _seed(found: Course) -> None:
    courses.one_more(lab().store, found)
    lab().launcher.wake()


def _links(found: Course) -> None:
    """Links to the pages that show the runs in detail."""
    with st.container(horizontal=True, gap="small"):
        for setup in found.lesson.setups:
            for row in found.of(setup)[:1]:  # its runs may be deleted
                st.page_link(page_of(row.spec.kind), label=f"{setup.label} in {KINDS[row.spec.kind].label}",
                             icon=":material/open_in_full:", query_params={"run": row.id})
        st.page_link("../pages/compare.py", label="Compare", icon=":material/query_stats:",
                     query_params=written(ComparePlace(sweep=found.sweep, metric=found.lesson.charts[0])))
        if found.lesson.more and FOUNDATIONS.exists():
            st.page_link("../pages/foundations.py", label="Foundations", icon=":material/school:",
                         query_params={"section": found.lesson.more})
