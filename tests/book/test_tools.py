"""The tools: what they report, and that they notice what they must."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imsave
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools import execute
from tools.execute import NotebookError, run
from tools.figures import difference, png_difference, svg_difference
from tools.notebooks import (
    changes,
    clean,
    digest,
    entry,
    find_notebooks,
    output_digest,
    read,
    source_digest,
    surroundings,
    write,
)
from tools.paths import ROOT, relative
from tools.sphinx_docstrings import protect


def notebook(*sources: str) -> NotebookNode:
    return new_notebook(cells=[new_code_cell(source) for source in sources])


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Store one executed notebook in a folder that stands for the repository."""
    monkeypatch.setattr("tools.paths.ROOT", tmp_path)
    path = tmp_path / "one.ipynb"
    executed = notebook("1 + 1")
    executed.cells[0].execution_count = 1
    executed.cells[0].outputs = [new_output("execute_result", data={"text/plain": "2"}, execution_count=1)]
    write(executed, path)
    return path


SURROUNDINGS = {"data": "a", "library": "b", "lock": "c"}


def recorded(path: Path) -> dict[str, dict[str, str]]:
    return {"one.ipynb": entry(read(path), SURROUNDINGS)}


def test_an_unchanged_notebook_is_current(stored: Path) -> None:
    assert changes(stored, recorded(stored), SURROUNDINGS) == []


@pytest.mark.parametrize("name", ["data", "library", "lock"])
def test_a_change_around_the_notebook_is_noticed(stored: Path, name: str) -> None:
    assert changes(stored, recorded(stored), {**SURROUNDINGS, name: "other"}) == [name]


def test_a_change_of_text_or_of_an_output_is_noticed(stored: Path) -> None:
    record = recorded(stored)
    text = stored.read_text(encoding="utf-8")
    stored.write_text(text.replace("1 + 1", "1 + 2"), encoding="utf-8")
    assert changes(stored, record, SURROUNDINGS) == ["sources"]
    stored.write_text(text.replace('"2"', '"3"'), encoding="utf-8")
    assert changes(stored, record, SURROUNDINGS) == ["outputs"]
    assert changes(stored, {}, SURROUNDINGS) == ["never executed"]


def test_markdown_and_tags_belong_to_the_sources() -> None:
    plain = notebook("x = 1")
    tagged = notebook("x = 1")
    tagged.cells[0].metadata["tags"] = ["hide-input"]
    worded = notebook("x = 1")
    worded.cells.append(new_markdown_cell("Text."))
    assert len({source_digest(book) for book in (plain, tagged, worded)}) == 3
    assert len({output_digest(book) for book in (plain, tagged, worded)}) == 1


def test_digest_keeps_its_parts_apart() -> None:
    assert digest(b"ab", b"c") != digest(b"a", b"bc")


def test_editor_state_and_timestamps_are_dropped() -> None:
    book = notebook("x = 1")
    book.cells[0].metadata.update({"execution": {"iopub.execute_input": "now"}, "tags": ["parameters"]})
    book.metadata["language_info"] = {"name": "python", "version": "3.11.7"}
    cleaned = clean(book)
    assert cleaned.cells[0].metadata == {"tags": ["parameters"]}
    assert cleaned.metadata["language_info"] == {"name": "python"}


def test_hidden_and_built_notebooks_are_not_found(tmp_path: Path) -> None:
    for name in ("a.ipynb", "part/b.ipynb", ".ipynb_checkpoints/a.ipynb", "_build/c.ipynb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}", encoding="utf-8")
    assert [path.relative_to(tmp_path).as_posix() for path in find_notebooks(tmp_path)] == [
        "a.ipynb",
        "part/b.ipynb",
    ]


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    texts = []
    for name in ("first", "second"):
        book = notebook("{'b', 'a', 'c'}", "import random; hash('word')")
        for index, cell in enumerate(book.cells):
            cell.id = f"cell-{index}"
        run(book, tmp_path, timeout=60)
        write(book, tmp_path / name)
        texts.append((tmp_path / name).read_bytes())
    assert texts[0] == texts[1]


def test_a_failing_cell_is_shown_with_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(NotebookError) as caught:
        run(notebook("value = 0", "1 / value"), tmp_path, timeout=60)
    assert "1 / value" in str(caught.value)
    assert "ZeroDivisionError" in str(caught.value)


def test_a_warning_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(NotebookError, match="wrote to stderr"):
        run(notebook("import warnings; warnings.warn('careful')"), tmp_path, timeout=60)


def svg(x: float, name: str, element: str = "path") -> bytes:
    return f'<svg><{element} id="m{name}" d="M {x:.6f} 2.5"/><use href="#m{name}"/></svg>'.encode()


def test_figures_may_differ_in_the_last_digit_only() -> None:
    one = svg(10.0, "0123456789")
    assert svg_difference(one, svg(10.000001, "abcdef0123")) == ""
    assert "points apart" in svg_difference(one, svg(12.0, "abcdef0123"))
    assert "other elements" in svg_difference(one, svg(10.0, "0123456789", "rect"))


def test_pixels_may_differ_in_a_shade_only(tmp_path: Path) -> None:
    images = []
    for index, shade in enumerate((0.5, 0.502, 0.7)):
        imsave(tmp_path / f"{index}.png", np.full((8, 8, 3), shade))
        images.append((tmp_path / f"{index}.png").read_bytes())
    assert png_difference(images[0], images[1]) == ""
    assert "pixels" in png_difference(images[0], images[2])


def test_a_lost_or_moved_figure_is_found() -> None:
    def shows(*figures: bytes) -> NotebookNode:
        book = notebook("draw()")
        links = "".join(
            f'<img src="data:image/svg+xml;base64,{base64.b64encode(f).decode()}">' for f in figures
        )
        book.cells[0].outputs = [new_output("display_data", data={"text/html": links})]
        return book

    one, two = svg(10.0, "0123456789"), svg(20.0, "0123456789")
    assert difference(shows(one), shows(one)) == []
    assert "one run only" in difference(shows(one, two), shows(one))[0]
    assert "points apart" in difference(shows(one), shows(two))[0]


def test_docstrings_keep_code_and_lose_accidental_markup() -> None:
    assert (
        protect("|x| of theta_ and ``|y|`` and :math:`|z|`")
        == r"\|x\| of theta\_ and ``|y|`` and :math:`|z|`"
    )
    assert protect(">>> a_ | b") == ">>> a_ | b"


def test_top_folder_is_the_repository() -> None:
    assert (ROOT / "pyproject.toml").is_file()


def test_a_fresh_clone_executes_what_is_current_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make book` shows a newcomer the execution; the second call finds it done."""
    monkeypatch.setattr(execute, "HERE", tmp_path / "executed-here.json")
    path = find_notebooks()[0]
    common = surroundings()
    record = {relative(path): entry(read(path), common)}
    assert execute.stale([path], record, common, force=False) == []
    assert execute.stale([path], record, common, force=False, here=True) == [path]
    execute.remember(path, record)
    assert execute.stale([path], record, common, force=False, here=True) == []
    changed = {relative(path): record[relative(path)] | {"text": "another"}}
    assert execute.stale([path], changed, common, force=False, here=True) == [path]
