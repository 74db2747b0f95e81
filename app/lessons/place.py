"""The link parameters of the page Lessons, and its style. To go there from the page itself takes a button: Streamlit's
links to the page that is open do nothing."""

from __future__ import annotations

from dataclasses import dataclass

from app import link
from app.link import param
from labcore.analysis.lessons.folders import NEW


@dataclass(frozen=True)
class Place:
    """The open lesson by its name; empty for the list of all. `write`: the own lesson that is edited, or NEW."""

    lesson: str = param("")
    write: str = param("")


def go(name: str = "") -> None:
    """Open a lesson, or the list of all."""
    link.go(link.written(Place(name)))


def write(name: str = NEW) -> None:
    """Open the editor with a lesson of one's own, or with the draft of a new one."""
    link.go(link.written(Place(write=name)))


CSS = """<style>
.rl-lesson small{display:block;font-size:12.5px;opacity:.75;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.rl-lesson img{display:block;width:100%;max-width:430px;height:auto}
.rl-lesson>div{display:flex;flex-wrap:wrap;gap:0 14px;font-size:12.5px}
.rl-of-lesson{font-size:13.5px}.rl-of-lesson .rl-muted:first-child{margin:0}
.st-key-lesson_cards [data-testid=stCaptionContainer] p{font-size:14px;line-height:1.4}
.st-key-lesson_cards .stHorizontalBlock .stHorizontalBlock{flex-wrap:nowrap}
.st-key-lesson_cards .stHorizontalBlock .stHorizontalBlock>.stColumn{min-width:0}
/* the picture of a card that has the row for itself is as wide as those of the others */
@media (min-width:641px){.st-key-lesson_cards .stColumn:only-child .stColumn:first-child{flex:0 0 17.6%}}
.rl-lesson i{display:inline-block;width:14px;height:3px;border-radius:2px;margin-right:6px;vertical-align:4px}
.st-key-lesson_head h2{padding-top:0}
.st-key-lesson_text textarea{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.st-key-lesson_cards .stButton button,.st-key-first_hour .stColumn button{text-align:left;justify-content:flex-start;
  padding:0;min-height:0;height:auto}
.st-key-lesson_cards .stButton button p{font-size:16px;line-height:1.3;white-space:normal;overflow:visible}
/* the path: numbers on a line, each over its title; on a phone beside it */
.st-key-first_hour .stColumn{position:relative}
.st-key-first_hour .stColumn:not(:last-child)::before{content:"";position:absolute;left:26px;right:-1rem;top:12px;
  border-top:2px solid color-mix(in srgb,currentColor 22%,transparent)}
.st-key-first_hour .stColumn button{border:none;background:none!important;color:inherit!important;border-radius:4px}
.st-key-first_hour .stColumn button p{display:block;font-size:14px;line-height:1.35;position:relative;
  padding:34px 6px 0 0;white-space:normal;overflow:visible;font-weight:400;
  color:light-dark(#1B1F24,#E7EAEE)}
.st-key-first_hour .stColumn button:hover p{text-decoration:underline;text-underline-offset:3px}
.st-key-first_hour .stColumn strong{position:absolute;left:0;top:0;display:grid;place-items:center;width:26px;
  height:26px;border-radius:50%;font-size:13px;box-sizing:border-box;border:2px solid light-dark(#0072B2,#4FA8E0);
  color:light-dark(#0072B2,#4FA8E0);background:light-dark(#FFFFFF,#14171B)}
.st-key-first_hour .stColumn :is([data-testid=stBaseButton-primary],[data-testid=stBaseButton-tertiary]) strong{
  color:#fff;background:light-dark(#0072B2,#1F6FA8);border-color:light-dark(#0072B2,#1F6FA8)}
.st-key-first_hour .stColumn [data-testid=stBaseButton-primary] p{font-weight:600}
@media (max-width:640px){.st-key-first_hour .stColumn button p{padding:3px 0 3px 36px;min-height:26px}
  .st-key-first_hour .stColumn:not(:last-child)::before{left:12px;right:auto;top:26px;bottom:-1rem;border-top:0;
    border-left:2px solid color-mix(in srgb,currentColor 22%,transparent)}}
.st-key-lesson_introduction p{font-size:17px;line-height:1.5;max-width:68ch}
.st-key-first_hour{background:color-mix(in srgb,var(--st-primary-color,#0072B2) 5%,transparent)}
</style>"""
