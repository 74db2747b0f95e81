"""The settings that the knobs of a run become in another tool.

A tool's rules are a table, knob → rule, for each loop. A rule says with which settings the tool does the same, that it
does so by default, or that it cannot and what to do about it. Nothing is dropped in silence: a knob that no
rule knows is named as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from labcore.catalog import choices
from labcore.catalog.choice import Family
from labcore.catalog.inactive import reason
from labcore.catalog.knob import Value
from labcore.catalog.mix.row import idle
from labcore.exports.handover.plan import Line, Plan, Rule, Rules
from labcore.runs.spec.run_spec import knobs_of

Chosen = TypeVar("Chosen", bound=Value)


def lines(plan: Plan, rules: Rules, tool: str) -> list[Line]:
    """The line of each knob of the run in `tool`, in the catalog's order; for a mix, without the knobs of choices that
    it did not take. The declaration of a choice gives the lines of its own knobs, unless `rules` have one."""
    found = []
    for knob in knobs_of(plan.spec.row, plan.spec.task_row):
        if plan.spec.mix and idle(plan.spec.algorithm, knob.key, plan.spec.knobs):
            continue
        value = plan[knob.key]
        line = rules[knob.key](plan, value) if knob.key in rules else _of_choice(plan, knob.key, value, tool)
        found.append(replace(line, knob=knob.key, value=value))
    return _with_clashes(found)


def _with_clashes(found: list[Line]) -> list[Line]:
    """The lines, with a note wherever a later knob gives a setting another value. The later value counts."""
    last = {name: line for line in found for name in line.settings}
    said = []
    for line in found:
        lost = [f"the script sets {name} for {last[name].knob} instead" for name, value in line.settings.items()
                if last[name].settings[name] != value]
        said.append(replace(line, note="; ".join(filter(None, (line.note, *lost)))) if lost else line)
    return said


UNKNOWN = Line("", 0, {}, note="nothing is known of it there: look for it in the tool's documentation")


def _of_choice(plan: Plan, knob: str, value: Any, tool: str) -> Line:
    """The line of a choice's own knob: the settings that the members declare, or a note why there is no equivalent."""
    families = [family for family in choices.FAMILIES if knob in choices.own_knobs(family)]
    if not families:
        return UNKNOWN
    asking = [each for family in families for each in choices.chosen(family, plan.spec.knobs) if knob in each.needs
              or knob in (own.key for own in each.brings)]
    known = [there for each in asking if (there := each.there(tool))]
    for there in known:
        if knob in there.knobs:
            setting = there.knobs[knob]
            return Line("", value, {setting: value} if isinstance(setting, str) else setting(value))
    notes = [note for there in known if (note := there.lacks.get(knob, there.note))]
    rule = missing(notes[0] if notes else f"no equivalent in {tool}") if asking else built_in()
    return rule(plan, value)


def to(*names: str, note: str = "") -> Rule:
    """A rule that passes the value on under other names."""
    return lambda plan, value: Line("", value, dict.fromkeys(names, value), note=note)


def given(settings: Callable[[Plan, Any], Mapping[str, Any]], note: str | Callable[[Plan, Any], str] = "") -> Rule:
    """A rule whose settings, and possibly note, depend on the value."""
    return lambda plan, value: Line("", value, settings(plan, value),
                                    note=note if isinstance(note, str) else note(plan, value))


def built_in(note: str = "") -> Rule:
    """A rule for knobs whose effect the tool has by default."""
    return lambda plan, value: Line("", value, {}, built_in=True, note=note)


def missing(note: str) -> Rule:
    """A rule for knobs without an equivalent in the tool."""
    return lambda plan, value: Line("", value, {}, note=note)


def choice(table: Mapping[Chosen, tuple[Mapping[str, Any], str]], otherwise: str) -> Rule:
    """A rule with the settings and the note of each choice; `otherwise` is the note for a choice that is not in the
    table.

    Settings that are empty without a note are what the tool does anyway.
    """
    def rule(plan: Plan, value: Any) -> Line:
        settings, note = table.get(value, ({}, otherwise))
        return Line("", value, settings, built_in=value in table and not settings and not note, note=note)

    return rule


def choices_of(family: Family[Any], tool: str, otherwise: str, setting: str = "") -> Rule:
    """A rule for the choice of a family in `tool`, from the declarations of its members. `setting` takes their names
    there. `otherwise` says what the tool does for a member that declares nothing."""
    def rule(plan: Plan, value: Any) -> Line:
        there = family[str(value)].there(tool)
        if there is None:
            return Line("", value, {}, note=f"no equivalent: {otherwise}")
        settings = {setting: there.name} | dict(there.settings) if setting and there.name else there.settings
        return Line("", value, settings, built_in=not settings and not there.note, note=there.note)

    return rule


def only_with(knob: str, value: str, rule: Rule) -> Rule:
    """`rule` if the run's `knob` has that value; with another value the setting has no effect, and no line says
    anything."""
    return lambda plan, own: rule(plan, own) if plan.get(knob) == value else Line("", own, {}, built_in=True)


def acting(rule: Rule, knob: str) -> Rule:
    """`rule`, unless `knob` has no effect on the run with its other knobs."""
    return lambda plan, value: (Line("", value, {}, built_in=True) if reason(knob, plan.spec.knobs)
                                else rule(plan, value))


def switch(rule: Rule, *at: Any) -> Rule:
    """`rule`, unless the switch has one of the values at which it is off."""
    return lambda plan, value: Line("", value, {}, built_in=True) if value in at else rule(plan, value)
