"""The tool of `make mutants`, on a project of three lines."""

import pytest

from tests import mutants

FAULTS = """
["labcore/sums.py"]
mutations = [
    ["the sign of b", 'a + b', 'a - b'],
    ["nothing that a test looks at", '+ 0 * a', '+ 0'],
    ["text that is gone", 'a * b', 'b'],
    ["a name that is not there", 'return a', 'return absent + a'],
]
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "SLOW_IMPORTS", ())
    for folder in ("labcore", "tests/mutations"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['.']\n")
    (tmp_path / "labcore/sums.py").write_text("def add(a, b):\n    return a + b + 0 * a\n")
    (tmp_path / "tests/test_sums.py").write_text(
        "from labcore.sums import add\n\ndef test_add():\n    assert add(2, 3) == 5\n")
    (tmp_path / "tests/mutations/all.toml").write_text(FAULTS)
    return tmp_path


def test_each_fault_is_tried_in_a_copy(project, capsys):
    before = (project / "labcore/sums.py").read_text()
    assert mutants.main([], project) == 1
    printed = capsys.readouterr().out
    assert "killed" in printed.split("the sign of b")[0].splitlines()[-1]
    assert "survived: labcore/sums.py: nothing that a test looks at" in printed
    assert "has the text 'a * b' 0 times instead of once" in printed
    assert printed.splitlines()[-5].split() == ["all", "1", "1", "·", "2"]
    assert (project / "labcore/sums.py").read_text() == before


def test_all_killed_is_a_success_and_the_list_can_be_cut(project):
    assert mutants.main(["--only", "sign|absent"], project) == 0


def test_tests_that_fail_by_themselves_prove_nothing(project, capsys):
    (project / "tests/test_sums.py").write_text("def test_add():\n    assert False\n")
    assert mutants.main([], project) == 1
    assert "tests/test_sums.py fails without any fault" in capsys.readouterr().out


@pytest.mark.long
def test_a_fault_may_name_the_test_that_is_to_notice_it(project):
    """Then no other is run: not the one that would have seen it."""
    (project / "tests/test_more.py").write_text("def test_nothing():\n    assert True\n")
    for name, result in (("tests/test_more.py::test_nothing", 1), ("tests/test_sums.py::test_add", 0)):
        (project / "tests/mutations/all.toml").write_text(
            f'["labcore/sums.py"]\nmutations = [["the sign of b", "a + b", "a - b", "{name}"]]\n')
        assert mutants.main([], project) == result


def test_a_fault_that_makes_the_tests_hang_is_noticed(project):
    hang = mutants.Mutation("labcore/sums.py", ("tests/test_sums.py",), "an end", "return",
                            "__import__('time').sleep(60)\n    return")
    outcome, = mutants.run([hang], project, seconds=2)
    assert outcome.result == "killed"


def test_every_mutation_of_the_project_fits_its_code():
    """At least 120, none twice, each with its text there once and its tests there."""
    mutations = mutants.load(mutants.ROOT / "tests/mutations", mutants.ROOT)
    assert len(mutations) >= 120 and len({(each.file, each.old, each.new) for each in mutations}) == len(mutations)
    for each in mutations:
        text = (mutants.ROOT / each.file).read_text("utf-8")
        assert mutants.mutated(text, each) != text
        for path, _, function in (test.partition("::") for test in each.tests):
            assert not function or f"def {function}(" in (mutants.ROOT / path).read_text("utf-8"), each.name
            assert (mutants.ROOT / path).is_file(), each.name


@pytest.mark.long
def test_the_tests_of_make_test_long_can_be_left_out(project):
    (project / "tests/test_sums.py").write_text(
        "import pytest\n\nfrom labcore.sums import add\n\n@pytest.mark.long\ndef test_add():\n"
        "    assert add(2, 3) == 5\n\n\ndef test_nothing():\n    assert add\n")
    assert mutants.main(["--unchecked", "--only", "sign"], project) == 0
    assert mutants.main(["--unchecked", "--only", "sign", "--marks", "not long"], project) == 1
