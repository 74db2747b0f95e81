"""`runs`, `mark`, `delete`, `restore` and `clean`: the list of runs, and keeping it in order. None of them trains."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from math import inf
from typing import Any, TypeVar

from labcore.catalog.amounts import duration
from labcore.catalog.amounts import size as in_bytes
from labcore.catalog.metrics import METRICS
from labcore.cli.adding import Add
from labcore.cli.commands import summary
from labcore.errors import LabError
from labcore.runs import places, titles
from labcore.runs.files import uploads
from labcore.runs.lists import cleanup, marks
from labcore.runs.lists.all_runs import Shelf
from labcore.runs.lists.entries import IMPORTED, Entry
from labcore.runs.lists.search import search
from labcore.runs.store.rows import RunRow
from labcore.runs.store.store import Store

MOST_TITLE = 40  # letters that the column of titles is wide: a longer one moves the rest of its line

Number = TypeVar("Number", int, float)


def add_to(add: Add) -> None:
    """Add the commands to the parser by its `add(name, command, help)`."""
    runs = add("runs", list_runs, "the runs in the store, newest first")
    runs.add_argument("search", nargs="*", metavar="SEARCH", help="words and comparisons, all of which must match: "
                      "grpo 'beta>0.05' tag=paper; project=Lessons and project=Studies show "
                      "the runs of lessons and studies, which are left out otherwise; a minus in front of a "
                      "term excludes its matches (write -- before it)")
    runs.add_argument("--deleted", action="store_true", help="list the runs in the trash")
    runs.add_argument("--json", action="store_true", help="print JSON")

    mark = add("mark", mark_runs, "star, tag or note runs, or group them into a project")
    mark.add_argument("runs", nargs="+", metavar="RUN")
    star = mark.add_mutually_exclusive_group()
    star.add_argument("--star", action="store_true", default=None, help="no clean-up deletes a starred run")
    star.add_argument("--unstar", dest="star", action="store_false")
    mark.add_argument("--tag", action="append", default=[], help="may be repeated")
    mark.add_argument("--untag", action="append", default=[], metavar="TAG", help="may be repeated")
    mark.add_argument("--project", help="the label that groups runs; an empty one removes the runs from their project")
    mark.add_argument("--note", help="the note of one run; empty deletes it")

    delete = add("delete", delete_runs, f"delete runs; for {marks.TRASH_DAYS} days they can be restored")
    delete.add_argument("runs", nargs="+", metavar="RUN")
    delete.add_argument("--for-good", action="store_true", help="permanently")

    restore = add("restore", restore_runs, "take deleted runs out of the trash")
    restore.add_argument("runs", nargs="+", metavar="RUN")

    clean = add("clean", clean_up, "show what a clean-up would delete, and with --yes delete it; starred runs are kept")
    what = clean.add_mutually_exclusive_group(required=True)
    what.add_argument("--older-than", type=float, metavar="DAYS", help="delete runs that ended before")
    what.add_argument("--keep", type=int, metavar="N", help="delete all runs but the newest N")
    what.add_argument("--files", action="store_true", help="delete old checkpoints, samples and exports; curves, "
                      "results, the first and the newest checkpoint stay")
    what.add_argument("--uploads", action="store_true", help="delete the texts, prompts, pairs and weights that no run "
                      "uses any more, not even one in the trash; files of the "
                      "last day are kept")
    what.add_argument("--trash", action="store_true", help="delete everything in the trash for good")
    clean.add_argument("--yes", action="store_true", help="do it")


def list_runs(options: argparse.Namespace) -> int:
    """Print the runs."""
    store = Store()
    store.reconcile()
    marks.purge(store)
    shelf = Shelf(store)
    entries = search(shelf.trashed() if options.deleted else shelf.entries(), " ".join(options.search),
                     apart=options.deleted)
    if options.json:
        rows = {row.id: row for row in (store.trashed() if options.deleted else store.runs())}
        print(json.dumps([_described(store, rows, entry) for entry in entries], ensure_ascii=False, indent=2))
        return 0
    if not entries:
        text = "No run matches." if options.search else "The trash is empty." if options.deleted else (
            "No runs yet: python -m labcore run --algorithm grpo --task sort")
        print(text)
    if entries:
        print("\n".join(lines(store, entries)))
    return 0


def _described(store: Store, rows: dict[str, RunRow], entry: Entry) -> dict[str, Any]:
    marked = {"star": entry.star, "tags": entry.tags, "project": entry.project, "note": entry.note,
              "bytes": entry.summary.size,
              "best": {entry.summary.metric: entry.summary.best} if entry.summary.best is not None else {}}
    if entry.kind == IMPORTED:
        last = {entry.summary.metric: entry.summary.last} if entry.summary.last is not None else {}
        return {"run": entry.id, "title": entry.title, "state": entry.state, "message": entry.message,
                "step": entry.step, "metrics": last} | marked
    return summary(store, rows[entry.id]) | marked


def lines(store: Store, entries: Sequence[Entry]) -> list[str]:
    """A line for each: its id for the next command, beside its title."""
    wide = min(MOST_TITLE, max(len(entry.title) for entry in entries))
    waiting = store.runs("queued") if any(entry.state == "queued" for entry in entries) else []
    going = places.going(store, waiting)
    said = {run.id: places.waiting_sentence(run.message, places.holders(run, going)) for run in waiting}
    return [_line(entry, wide, titles.with_titles(said.get(entry.id, entry.message), lambda: store))
            for entry in entries]


def _line(entry: Entry, wide: int, message: str) -> str:
    steps = f"{entry.step:>6}/{entry.steps:<6}" if entry.steps else f"{entry.step:>6} {'':<6}"
    seconds = f"{'' if entry.seconds is None else duration(entry.seconds):>11}"
    project = f"  [{entry.project}]" if entry.project else ""
    shown, tags = entry.summary, project + "".join(f"  #{tag}" for tag in entry.tags)
    value = "" if shown.last is None else f"{METRICS[shown.metric].key} {shown.last:z.4g}"
    star, state = "*" if entry.star else " ", entry.pending or entry.state
    return (f"{star} {entry.id:<26} {entry.title:<{wide}}  {state:<12} {steps} {seconds}  {value:<24}{tags}  "
            f"{message}").rstrip()


def mark_runs(options: argparse.Namespace) -> int:
    """Star, tag or note runs."""
    store = Store()
    if options.note is not None and len(options.runs) > 1:
        raise LabError("A note belongs to one run: name one, or use --tag for several.")
    if options.star is not None:
        marks.star(store, options.runs, options.star)
    if options.tag or options.untag:
        marks.tag(store, options.runs, options.tag, options.untag)
    if options.project is not None:
        marks.assign(store, options.runs, options.project)
    if options.note is not None:
        marks.note(store, options.runs[0], options.note)
    return 0


def delete_runs(options: argparse.Namespace) -> int:
    """Delete runs, into the trash or for good."""
    store = Store()
    store.reconcile()
    named = _named(store, options.runs)
    if options.for_good:
        marks.delete(store, options.runs)
        print(f"Deleted for good: {named}.")
    else:
        marks.trash(store, options.runs)
        print(f"Deleted: {named}. To restore them: python -m labcore restore {' '.join(options.runs)}")
    return 0


def restore_runs(options: argparse.Namespace) -> int:
    """Take runs out of the trash."""
    store = Store()
    marks.restore(store, options.runs)
    print(f"Restored: {_named(store, options.runs)}.")
    return 0


def clean_up(options: argparse.Namespace) -> int:
    """List what can be deleted; with --yes delete it."""
    store = Store()
    store.reconcile()
    if options.uploads:
        return _clean_up_uploads(store, options.yes)
    shelf = Shelf(store)
    entries = shelf.trashed() if options.trash else shelf.entries()
    if options.trash:
        plan = cleanup.Plan(tuple(entry.id for entry in entries), sum(entry.summary.size or 0 for entry in entries))
    elif options.files:
        plan = cleanup.spare_files(entries)
    elif options.keep is not None:
        plan = cleanup.beyond_newest(entries, _natural(options.keep, "--keep"))
    else:
        plan = cleanup.older_than(entries, _natural(options.older_than, "--older-than"))
    text = ("files of " if plan.files else "") + _amount(len(plan.ids), plan.size)
    if not options.yes:
        named = {entry.id: entry.title for entry in entries}
        print("\n".join([*(f"{run_id}  {named[run_id]}" for run_id in plan.ids),
                         f"Would delete {text}: add --yes to do it."]))
        return 0
    if options.trash:
        gone = marks.purge(store, 0, plan.ids)  # one may have been restored meanwhile
        text = _amount(len(gone), sum(entry.summary.size or 0 for entry in entries if entry.id in gone))
    else:
        cleanup.carry_out(shelf, plan)
    print(f"Deleted {text}." + ("" if plan.files or options.trash else " They are in the trash: restore brings them "
          "back, clean --trash frees their disk space."))
    return 0


def _clean_up_uploads(store: Store, do_it: bool) -> int:
    places = cleanup.unused_uploads(store)
    if do_it:
        freed = cleanup.remove_uploads(store, places)
        print(f"Deleted {_amount(len(freed), sum(freed.values()), 'upload')}.")
    else:
        text = _amount(len(places), sum(map(uploads.size, places)), "upload")
        listed = [f"{uploads.root() / place}: {', '.join(uploads.names(place))}" for place in places]
        print("\n".join([*listed, f"Would delete {text}: add --yes to do it."]))
    return 0


def _amount(count: int, size: int, what: str = "run") -> str:
    return f"{count} {what}{'s' if count != 1 else ''}, {in_bytes(size)}"


def _natural(value: Number, name: str) -> Number:
    if not 0 <= value < inf:
        raise LabError(f"{name} is {value}: give a number from 0.")
    return value


def _named(store: Store, ids: Sequence[str]) -> str:
    """Runs by their titles, and by their ids for the next command; metrics of other tools by their ids."""
    return ", ".join(titles.with_ids(store, ids))
