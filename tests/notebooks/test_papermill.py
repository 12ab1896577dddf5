"""Every notebook runs with other parameters, through papermill, in seconds."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import nbformat
import papermill
import pytest

from tools.execute import prepare, stderr_of
from tools.notebooks import find_notebooks
from tools.paths import ROOT, relative

each_notebook = pytest.mark.parametrize("path", find_notebooks(), ids=relative)


def execute(path: Path, target: Path, **parameters: object) -> nbformat.NotebookNode:
    """Run a notebook under ``parameters``; papermill itself only warns of a name that does not exist."""
    unknown = set(parameters) - set(papermill.inspect_notebook(str(path)))
    if unknown:
        raise KeyError(f"{relative(path)} has no parameter {', '.join(sorted(unknown))}")
    return papermill.execute_notebook(
        str(path),
        str(target),
        parameters=parameters,
        kernel_name="python3",
        cwd=str(path.parent),
        progress_bar=False,
    )


@each_notebook
def test_profile_quick_runs_without_a_word_on_stderr(path: Path, tmp_path: Path) -> None:
    done = execute(path, tmp_path / path.name, profile="quick")
    assert stderr_of(done) == []
    injected = [cell for cell in done.cells if "injected-parameters" in cell.metadata.get("tags", [])]
    assert len(injected) == 1
    assert 'profile = "quick"' in injected[0].source


@each_notebook
def test_an_unknown_parameter_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="no_such_parameter"):
        execute(path, tmp_path / path.name, no_such_parameter=1)


def documented_commands() -> list[str]:
    """Return the papermill lines of the README and of the first page."""
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "book/intro.md")]
    return sorted({line for text in texts for line in re.findall(r"^\.venv/bin/papermill .*$", text, re.M)})


@pytest.mark.parametrize("line", documented_commands())
def test_documented_command_runs(line: str, tmp_path: Path) -> None:
    program, source, target, *options = shlex.split(line)
    command = [program, str(ROOT / source), str(tmp_path / target), *options, "--cwd", str(ROOT / "book")]
    command[0] = str(Path(sys.executable).with_name(Path(program).name))
    names = options[1::3]
    assert set(names) <= set(papermill.inspect_notebook(str(ROOT / source)))
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert stderr_of(nbformat.read(tmp_path / target, as_version=4)) == []


def test_the_readme_documents_a_command() -> None:
    assert documented_commands()


@each_notebook
def test_other_profiles_can_be_prepared(path: Path) -> None:
    """`tools.execute --profile quick` injects the profile behind the parameters and changes no other cell."""
    prepared = prepare(path, "quick")
    stored = prepare(path, "book")
    injected = [cell for cell in prepared.cells if "injected-parameters" in cell.metadata.get("tags", [])]
    assert [cell.source.splitlines()[-1] for cell in injected] == ['profile = "quick"']
    rest = [cell.source for cell in prepared.cells if cell not in injected]
    assert rest == [cell.source for cell in stored.cells]
