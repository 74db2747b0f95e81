"""The linter of the scripts sees what a browser gets, and says where in the files it is wrong."""

from tests.javascript import ROOT, lint, modules


def written(folder, **texts):
    """Files NAME.js with these texts."""
    paths = [folder / f"{name}.js" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def found(*joined):
    return [(each.path.stem, each.line, each.rule) for each in lint(joined)]


def test_every_script_is_linted():
    linted = {path for files in modules() for path in files}
    assert linted == {*(ROOT / "app" / "components").rglob("*.js")} and len(linted) > 10


def test_a_name_may_come_from_another_file_of_the_module(tmp_path):
    one, two = written(tmp_path, one="// é ρ\nexport const a = other();", two="function other() { return 1; }")
    assert found([one, two]) == []
    assert found([one], [one, two]) == [("one", 2, "eslint(no-undef)")]


def test_unused_is_what_no_module_uses(tmp_path):
    shared, user, other = written(tmp_path, shared="function f() { return 1; }\nfunction g() { return 2; }",
                                  user="export const a = f();", other="export const b = 2;")
    assert found([shared, user], [shared, other]) == [("shared", 2, "eslint(no-unused-vars)")]


def test_a_script_that_cannot_be_read_is_found(tmp_path):
    good, twice, broken = written(tmp_path, good="export const a = 1;", twice="const a = 2;", broken="const = 3;")
    assert found([good, twice])[0][2] == "syntax"
    assert found([good, broken]) == [("broken", 1, "syntax")]
