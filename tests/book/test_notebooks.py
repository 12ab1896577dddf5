"""Notebooks as they are stored: run from top to bottom, current, readable."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tools.notebooks import (
    KEPT_METADATA,
    RECORD,
    changes,
    clean,
    code_cells,
    find_notebooks,
    read,
    read_record,
)
from tools.notebooks import surroundings as hash_surroundings
from tools.paths import ROOT, relative
from tools.prose import bare_decimals

NOTEBOOKS = find_notebooks()
LONGEST_CELL = 12
# Progress bars, timings and addresses: what differs from run to run and must not be stored.
VOLATILE = re.compile(
    r"\d+%\|.*\||\d(?:it|s)/(?:s|it)\b|Wall time|CPU times|\bat 0x[0-9a-f]{6,}|ipykernel_\d+"
)

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=relative)


@pytest.fixture(scope="module")
def surroundings() -> dict[str, str]:
    return hash_surroundings()


def texts(cell: Any) -> str:
    return "\n".join(
        str(output.get("text", "")) + "".join(str(value) for value in output.get("data", {}).values())
        for output in cell.outputs
    )


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@each_notebook
def test_cells_ran_once_from_top_to_bottom(path: Path) -> None:
    counts = [cell.execution_count for _, cell in code_cells(read(path))]
    assert counts == list(range(1, len(counts) + 1))


@each_notebook
def test_no_cell_stores_an_error_or_a_warning(path: Path) -> None:
    bad = [
        (index, output.output_type)
        for index, cell in code_cells(read(path))
        for output in cell.outputs
        if output.output_type == "error" or output.get("name") == "stderr"
    ]
    assert bad == []


@each_notebook
def test_stored_outputs_belong_to_text_library_lock_and_data(
    path: Path, surroundings: dict[str, str]
) -> None:
    assert changes(path, read_record(), surroundings) == [], "run `make book` and commit the notebook"


def test_record_names_only_notebooks_that_exist() -> None:
    assert sorted(read_record()) == [relative(path) for path in NOTEBOOKS]
    assert json.loads(RECORD.read_text(encoding="utf-8")) == read_record()


@each_notebook
def test_file_is_what_the_writer_would_write(path: Path) -> None:
    notebook = read(path)
    text = nbformat.writes(clean(notebook)).rstrip("\n") + "\n"
    assert path.read_text(encoding="utf-8") == text
    assert all(set(cell.metadata) <= set(KEPT_METADATA) for cell in notebook.cells)


@each_notebook
def test_cells_are_short(path: Path) -> None:
    def lines(source: str) -> int:
        return sum(1 for line in source.splitlines() if line.strip() and not line.lstrip().startswith("#"))

    long = {
        index: lines(cell.source)
        for index, cell in code_cells(read(path))
        if lines(cell.source) > LONGEST_CELL
    }
    assert long == {}, f"cells of more than {LONGEST_CELL} lines of code; move helpers into src/"


@each_notebook
def test_outputs_hold_no_progress_bars_timings_or_addresses(path: Path) -> None:
    found = {index: VOLATILE.findall(texts(cell)) for index, cell in code_cells(read(path))}
    assert {index: hits for index, hits in found.items() if hits} == {}


def test_volatile_pattern_sees_what_it_must() -> None:
    for text in (" 50%|#####     | 1/2", "2.3it/s", "Wall time: 3 ms", "<object at 0x7f3a12bc>"):
        assert VOLATILE.search(text), text
    assert not VOLATILE.search("a 95% interval, 1 s, e^0.5, 10% | 20%")


@each_notebook
def test_first_code_cell_holds_the_parameters(path: Path) -> None:
    _, first = next(code_cells(read(path)))
    assert "parameters" in first.metadata.get("tags", [])
    assert re.search(r'^profile = "book"', first.source, re.M)


@each_notebook
def test_notebook_images_have_an_alternative_text(path: Path) -> None:
    bare = [
        index
        for index, cell in code_cells(read(path))
        if any(key.startswith("image/") for output in cell.outputs for key in output.get("data", {}))
        and not cell.metadata.get("mystnb", {}).get("image", {}).get("alt")
    ]
    assert bare == []


@each_notebook
def test_numbers_in_the_prose_of_notebooks_are_glued(path: Path) -> None:
    cells = enumerate(read(path).cells)
    found = {index: bare_decimals(cell.source) for index, cell in cells if cell.cell_type == "markdown"}
    assert {index: numbers for index, numbers in found.items() if numbers} == {}


@pytest.mark.parametrize("path", sorted((ROOT / "book").glob("*.md")), ids=relative)
def test_pages_state_no_bare_results(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    # A generated page is compared with its source by a test of its own.
    assert bare_decimals(text) == [] or "<!-- Generated" in text


def test_bare_decimals_are_told_from_legitimate_ones() -> None:
    assert bare_decimals("The error is 0.25, and once 1.5e-3.") == ["0.25", "1.5e-3"]
    assert bare_decimals("It ends with 4.65.") == ["4.65"]
    kept = [
        "`0.5`",
        "$\\alpha = 0.05$",
        "$$x = 0.5$$",
        "{glue:text}`loss:0.2f`",
        "[x](a0.5b)",
        "https://a.b/1.5",
    ]
    kept += ["```python\nx = 0.5\n```", "version 1.2.3", "section §2.3", "<!-- 0.5 -->"]
    assert [text for text in kept if bare_decimals(f"Before {text} after.")] == []
