"""Execute the notebooks whose text, library, lock or data changed, and store their outputs.

A notebook that raises, or that writes to stderr, is reported with its cell and is not stored. With
``--profile quick`` or ``paper`` the chosen profile is injected into the parameters cell and the
outcome goes to ``_build/profiles``: the stored outputs always belong to the profile ``book``.

With ``--check`` nothing is written: every notebook runs again in memory, and its figures are compared
with the stored ones (everything else is compared by nbval).

usage: python -m tools.execute [--force | --check] [--profile NAME] [NOTEBOOK ...]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import NoReturn, TypeAlias, cast

import nbclient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from tqdm import tqdm

from tools.figures import difference, figures
from tools.kernel import use_kernel_environment
from tools.notebooks import (
    changes,
    code_cells,
    entry,
    find_notebooks,
    read,
    read_record,
    surroundings,
    write,
    write_record,
)
from tools.paths import BUILD, ROOT, relative

HERE = BUILD / "executed-here.json"
PROFILES = ("quick", "book", "paper")
CELL_TIMEOUT = {"quick": 120, "book": 300, "paper": None}


# A bar over cells that is advanced by hand, and so iterates over nothing.
Progress: TypeAlias = "tqdm[NoReturn]"


class NotebookError(Exception):
    """A notebook raised, or wrote to stderr."""


def stderr_of(notebook: NotebookNode) -> list[tuple[int, str]]:
    """Return cell number and text of everything that was written to stderr."""
    return [
        (index, output.text)
        for index, cell in code_cells(notebook)
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stderr"
    ]


def run(notebook: NotebookNode, folder: Path, timeout: int | None, bar: Progress | None = None) -> None:
    """Execute every cell of ``notebook`` in place, from a fresh kernel, in ``folder``.

    Raises
    ------
    NotebookError
        A cell raised or wrote to stderr. The message shows the cell and the traceback.
    """

    def advance(**_: object) -> None:
        if bar is not None:
            bar.update()

    client = nbclient.NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,  # where a print ends must not depend on when its message was sent
        resources={"metadata": {"path": str(folder)}},
        on_cell_executed=advance,
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise NotebookError(str(error)) from error
    noise = stderr_of(notebook)
    if noise:
        index, text = noise[0]
        raise NotebookError(f"cell {index} wrote to stderr:\n{notebook.cells[index].source}\n---\n{text}")


def prepare(path: Path, profile: str) -> NotebookNode:
    """Read a notebook, with another profile injected if one is asked for."""
    if profile == "book":
        return read(path)
    # Loaded by papermill, whose injection counts on the metadata that its loader adds.
    injected: NotebookNode = parameterize_notebook(load_notebook_node(str(path)), {"profile": profile})
    return injected


def execute(path: Path, profile: str, bar: Progress) -> NotebookNode:
    """Execute one notebook under ``profile``, store it, and report its time."""
    start = time.perf_counter()
    bar.set_description(path.stem)
    notebook = prepare(path, profile)
    run(notebook, path.parent, CELL_TIMEOUT[profile], bar)
    target = path if profile == "book" else BUILD / "profiles" / profile / path.name
    target.parent.mkdir(parents=True, exist_ok=True)
    write(notebook, target)
    bar.write(f"{relative(path)}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    return notebook


def check_figures(paths: list[Path]) -> list[str]:
    """Run every notebook again in memory; return the names of those that draw other figures."""
    failed = []
    for path in paths:
        start = time.perf_counter()
        fresh = read(path)
        try:
            run(fresh, path.parent, CELL_TIMEOUT["book"])
            faults = difference(read(path), fresh)
        except NotebookError as error:
            faults = [str(error)]
        print(f"{relative(path)}: {len(figures(fresh))} figure(s), {time.perf_counter() - start:.1f} s")
        print("".join(f"    {fault}\n" for fault in faults), end="", flush=True)
        failed += [relative(path)] if faults else []
    return failed


Record: TypeAlias = dict[str, dict[str, str]]


def read_here() -> Record:
    """Return the executions that this clone has done itself; empty in a fresh one."""
    return cast(Record, json.loads(HERE.read_text(encoding="utf-8"))) if HERE.exists() else {}


def remember(path: Path, record: Record) -> None:
    """Note that this clone has executed a notebook as it is recorded."""
    HERE.parent.mkdir(parents=True, exist_ok=True)
    here = read_here() | {relative(path): record[relative(path)]}
    HERE.write_text(json.dumps(here, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def stale(
    paths: list[Path], record: Record, common: dict[str, str], force: bool, here: bool = False
) -> list[Path]:
    """Select the notebooks to execute, and say why; with ``here`` also what this clone has not executed yet."""
    chosen, done = [], read_here()
    for path in paths:
        why = ["--force"] if force else changes(path, record, common)
        if not why and here and done.get(relative(path)) != record[relative(path)]:
            why = ["for the first time in this clone"]
        if why:
            print(f"{relative(path)}: to execute ({', '.join(why)})", file=sys.stderr)
            chosen.append(path)
        else:
            print(f"{relative(path)}: stored outputs are current", file=sys.stderr)
    return chosen


def execute_all(paths: list[Path], profile: str, force: bool, here: bool = False) -> list[str]:
    """Execute what is not current; return the names of the notebooks that failed."""
    record, common, failed = read_record(), surroundings(), []
    todo = stale(paths, record, common, force or profile != "book", here)
    total = sum(1 for path in todo for _ in code_cells(read(path)))
    with tqdm(total=total, unit="cell", disable=not todo, file=sys.stderr) as bar:
        for path in todo:
            try:
                notebook = execute(path, profile, bar)
            except NotebookError as error:
                bar.write(f"\n{relative(path)} FAILED\n{error}\n", file=sys.stderr)
                failed.append(relative(path))
                continue
            if profile == "book":
                record[relative(path)] = entry(notebook, common)
                write_record(record)
                remember(path, record)
    return failed


def main(arguments: list[str] | None = None) -> int:
    """Execute what changed; exit status 1 if a notebook failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.execute", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("notebooks", nargs="*", type=Path, help="only these (default: all under book/)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--force", action="store_true", help="execute also what is current")
    how.add_argument("--here", action="store_true", help="execute also what this clone has not executed yet")
    how.add_argument("--check", action="store_true", help="compare figures with a fresh run, write nothing")
    parser.add_argument("--profile", choices=PROFILES, default="book", help="default: book")
    options = parser.parse_args(arguments)
    use_kernel_environment()
    start = time.perf_counter()
    paths = [path if path.is_absolute() else ROOT / path for path in options.notebooks] or find_notebooks()
    if options.check:
        return report(check_figures(paths), len(paths), start)
    return report(execute_all(paths, options.profile, options.force, options.here), len(paths), start)


def report(failed: list[str], total: int, start: float) -> int:
    """Print the closing line; the exit status is 1 if a notebook failed."""
    if failed:
        print(f"Failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    print(f"{total} notebook(s) current after {time.perf_counter() - start:.0f} s.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
