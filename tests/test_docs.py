"""The documents agree with the code and with each other: links, commands, settings, and the list of pages."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from PIL import Image

from labcore.cli.main import parser
from tests.every import every
from tests.imports import ROOT

DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS, *sorted((ROOT / ".github").rglob("*.md"))]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors(text: str) -> set[str]:
    """The names that GitHub and the site give to the headings of a page."""
    heads = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head).replace("`", "") for head in heads)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in plain}


@every("page", PAGES)
def test_every_link_leads_to_a_file_and_to_a_heading_of_it(page):
    broken = []
    for link in LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
        place, _, anchor = link.partition("#")
        if "://" in link or place.startswith("mailto:"):
            continue
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            broken.append(link)
        if page in DOCS and not target.is_relative_to(ROOT / "docs"):
            broken.append(f"{link}: the site has no such file")
    assert not broken


def test_the_readme_is_one_screen_with_one_moving_picture():
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.split()) <= 400 and text.count("\n* ") == 6
    [picture] = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert (ROOT / picture).stat().st_size < 2e6 and Image.open(ROOT / picture).n_frames > 20


def commands(text: str) -> list[str]:
    """The lines of the fenced blocks that call the command line, with what continues them."""
    blocks = "\n".join(match[0] for match in FENCED.finditer(text)).replace("\\\n", " ")
    return re.findall(r"^ *(?:\$ )?(?:python -m labcore|rl-lab) +(?![-#])(\S.*)$", blocks, re.MULTILINE)


@pytest.mark.parametrize("page", [each for each in PAGES if commands(each.read_text("utf-8"))], ids=name)
def test_every_command_is_one_that_the_parser_takes(page, capsys):
    for line in commands(page.read_text("utf-8")):
        words = shlex.split(line.replace("…", "--algorithm grpo"), comments=True)  # options shown before
        try:
            options = parser().parse_args(words)
        except SystemExit:
            pytest.fail(f"{line}\n{capsys.readouterr().err}")
        assert callable(options.command), line


def test_the_page_on_the_command_line_has_every_command():
    lines = commands((ROOT / "docs" / "cli.md").read_text("utf-8"))
    [added] = [action for action in parser()._actions if action.choices]
    assert {line.split()[0] for line in lines} == set(added.choices)


def test_the_page_on_settings_has_every_variable_that_the_code_reads():
    code = {path.read_text("utf-8") for folder in ("app", "labcore", "pages") for path in (ROOT / folder).rglob("*.py")}
    read = {variable for text in code for variable in re.findall(r"\bRL_LAB_[A-Z_]+[A-Z]\b", text)}
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "settings.md").read_text("utf-8"), re.MULTILINE)
    assert len(read) > 10 and sorted(rows) == sorted(read)
    tests = (ROOT / "tests" / "conftest.py").read_text("utf-8")
    assert not {variable for variable in read if variable not in tests}, "the tests would see those of who runs them"


@every("page", PAGES)
def test_every_file_of_the_code_that_a_page_names_is_there(page):
    """A name alone is a file beside the one before it. A guide may also name files that it writes."""
    text = page.read_text("utf-8")
    told = [*re.findall(r"((?:^.+\n)+)\n```", text, re.MULTILINE), "pages/KEY.py"]  # before the content of a file
    for line in FENCED.sub("", text).splitlines():
        folder = None
        for path in re.findall(r"`([\w/]+\.(?:py|js|toml))`", line):
            if "/" in path:
                there = [root / path for root in (ROOT, ROOT / "labcore", ROOT / "app") if (root / path).exists()]
                assert there or any(path in each for each in told), line
                folder = there[0].parent if there else None
            else:
                assert folder is None or (folder / path).exists(), line


def test_the_site_and_its_index_have_every_page():
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    there = {path.name for path in DOCS}
    assert sorted(flat(site["nav"])) == sorted(there), "each of them once"
    linked = LINK.findall((ROOT / "docs" / "index.md").read_text("utf-8"))
    assert there - {"index.md"} <= set(linked)


def flat(nav: list | dict | str) -> list[str]:
    """The files of a navigation with sections."""
    if isinstance(nav, str):
        return [nav]
    return [file for each in (nav.values() if isinstance(nav, dict) else nav) for file in flat(each)]
