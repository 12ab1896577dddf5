"""Reading, hashing and writing notebooks so that equal runs give equal bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from tools.paths import BOOK, DATA_INDEX, LOCK, ROOT, SOURCE, relative

RECORD = BOOK / "executions.json"
KEPT_METADATA = ("tags", "mystnb", "nbgrader")
NOTEBOOK_METADATA: dict[str, Any] = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def find_notebooks(folder: Path = BOOK) -> list[Path]:
    """Return the notebooks below ``folder``, sorted, without build and checkpoint folders."""
    return sorted(
        path
        for path in folder.rglob("*.ipynb")
        if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    )


def read(path: Path) -> NotebookNode:
    """Read a notebook as version 4."""
    notebook: NotebookNode = nbformat.read(path, as_version=4)
    return notebook


def clean(notebook: NotebookNode) -> NotebookNode:
    """Drop in place what changes from run to run: time stamps, kernel versions, editor state."""
    for cell in notebook.cells:
        cell.metadata = NotebookNode({k: v for k, v in cell.metadata.items() if k in KEPT_METADATA})
    notebook.metadata = NotebookNode(NOTEBOOK_METADATA)
    return notebook


def write(notebook: NotebookNode, path: Path) -> None:
    """Write the cleaned notebook; two runs with equal outputs give equal files."""
    text: str = nbformat.writes(clean(notebook))
    path.write_text(text.rstrip("\n") + "\n", encoding="utf-8", newline="\n")


def code_cells(notebook: NotebookNode) -> Iterator[tuple[int, NotebookNode]]:
    """Yield position and cell of every code cell that holds code."""
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type == "code" and cell.source.strip():
            yield index, cell


def digest(*parts: bytes) -> str:
    """Return 16 hexadecimal digits of SHA-256 over ``parts``, each preceded by its length."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "big"))
        total.update(part)
    return total.hexdigest()[:16]


def source_digest(notebook: NotebookNode) -> str:
    """Hash what an author writes: kind, text and kept metadata of every cell."""
    cells = [
        [cell.cell_type, cell.source, {k: cell.metadata[k] for k in KEPT_METADATA if k in cell.metadata}]
        for cell in notebook.cells
    ]
    return digest(json.dumps(cells, sort_keys=True, ensure_ascii=False).encode())


def output_digest(notebook: NotebookNode) -> str:
    """Hash what a run stores: outputs and execution counts."""
    outputs = [[cell.execution_count, cell.outputs] for _, cell in code_cells(notebook)]
    return digest(json.dumps(outputs, sort_keys=True, ensure_ascii=False).encode())


def surroundings() -> dict[str, str]:
    """Hash what every notebook depends on beside its own text: the library, the lock, the data."""
    modules = sorted(SOURCE.rglob("*.py"))
    return {
        "data": digest(DATA_INDEX.read_bytes()) if DATA_INDEX.exists() else "none",
        "library": digest(
            *(part for path in modules for part in (relative(path).encode(), path.read_bytes()))
        ),
        "lock": digest(LOCK.read_bytes()),
    }


def entry(notebook: NotebookNode, common: dict[str, str]) -> dict[str, str]:
    """Return the record of one executed notebook."""
    return {**common, "outputs": output_digest(notebook), "sources": source_digest(notebook)}


def read_record(path: Path = RECORD) -> dict[str, dict[str, str]]:
    """Return the committed record of executions: notebook to its entry."""
    if not path.exists():
        return {}
    record: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    return record


def write_record(record: dict[str, dict[str, str]], path: Path = RECORD) -> None:
    """Write the record, sorted, without notebooks that are gone."""
    kept = {name: record[name] for name in sorted(record) if (ROOT / name).exists()}
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8", newline="\n")


def changes(path: Path, record: dict[str, dict[str, str]], common: dict[str, str]) -> list[str]:
    """Name what differs between a notebook and its last recorded execution; empty if it is current."""
    old = record.get(relative(path))
    if old is None:
        return ["never executed"]
    new = entry(read(path), common)
    return [name for name in new if new[name] != old.get(name)]
