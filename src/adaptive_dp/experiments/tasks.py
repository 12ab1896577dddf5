"""One run of an experiment in a worker, and the record of those that are finished."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import joblib  # type: ignore[import-untyped]
import threadpoolctl  # type: ignore[import-untyped]

import adaptive_dp
from adaptive_dp.experiments.grid import REPETITION, Point, plain, point_key, task_generator
from adaptive_dp.experiments.versions import today, versions

RunOne = Callable[..., Mapping[str, Any]]
"""``run_one(rng, **shared, **point)``, returning a mapping of scalars."""


@dataclass(frozen=True, slots=True)
class Task:
    """One run: a point of the grid and the number of the repetition."""

    point: Point
    repetition: int

    @property
    def key(self) -> tuple[str, int]:
        """What tells this task from all others."""
        return point_key(self.point), self.repetition


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a worker sends back. A failure is a value, so that results beside it are not lost."""

    task: Task
    output: Point
    seconds: float
    failure: str = ""
    details: str = ""


@functools.cache
def _limit_threads_of(process: int) -> None:
    """Hold BLAS and OpenMP to one thread for the rest of this worker process."""
    threadpoolctl.threadpool_limits(limits=1)


def run_task(
    run_one: RunOne, task: Task, shared: Mapping[str, Any], seed: int, paired: Sequence[str], parent: int
) -> Outcome:
    """Run one task; ``parent`` is the process of the sweep, whose threads are not for a task to limit."""
    if os.getpid() != parent:
        _limit_threads_of(os.getpid())
    start = time.perf_counter()
    try:
        rng = task_generator(seed, task.point, task.repetition, paired)
        returned = run_one(rng, **shared, **task.point)
        output = _check_output(returned, task.point)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        return Outcome(task, {}, time.perf_counter() - start, failure, traceback.format_exc())
    return Outcome(task, output, time.perf_counter() - start)


def _check_output(returned: object, point: Point) -> Point:
    if not isinstance(returned, Mapping) or not returned:
        raise TypeError(f"run_one must return a non-empty mapping of scalars, got {returned!r}")
    for name in returned:
        if name in point or name == REPETITION:
            raise ValueError(f"run_one returns {name!r}, which is already a column of the sweep")
    return {str(name): plain(name, value) for name, value in returned.items()}


class Memory:
    """Finished tasks of a sweep that is not recorded."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], Point] = {}
        self.seconds: dict[tuple[str, int], float] = {}

    def add(self, outcome: Outcome) -> None:
        """Take in a finished task."""
        self.rows[outcome.task.key] = outcome.output
        self.seconds[outcome.task.key] = outcome.seconds


_START = b'{"header": {'


class Record(Memory):
    """Finished tasks in a file of JSON lines: a header, then a line per task and per resumption.

    Only this process writes. A line counts when its line end has been written; the torn last line of
    an interrupted run is cut off before new ones are added.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        super().__init__()
        self._path = path
        self._identity = identity
        self._file: TextIO
        self._announced = False

    def __enter__(self) -> Record:
        whole = self._read()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if whole:
            with self._path.open("rb+") as file:
                file.truncate(whole)
        self._file = self._path.open("a" if whole else "w", encoding="utf-8", newline="\n")
        self._announced = not whole
        if not whole:
            self._write({"header": {**self._identity, **_stamp()}})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, outcome: Outcome) -> None:
        """Take in a finished task and write it down."""
        super().add(outcome)
        if not self._announced:  # a complete file stays as it is
            self._write({"resumed": _stamp()})
            self._announced = True
        task = outcome.task
        self._write(
            {
                "point": task.point,
                REPETITION: task.repetition,
                "output": outcome.output,
                "seconds": round(outcome.seconds, 4),
            }
        )

    def _write(self, entry: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        self._file.flush()

    def _read(self) -> int:
        """Take in the finished tasks; return the number of bytes that are whole lines."""
        data = self._path.read_bytes() if self._path.exists() else b""
        whole = data.rfind(b"\n") + 1
        if not whole and not data.startswith(_START[: len(data)]):
            raise ValueError(f"results: {self._path.name} is not of a sweep, and is left as it is")
        for number, line in enumerate(data[:whole].splitlines(), start=1):
            try:
                entry = json.loads(line)
                if number == 1:
                    self._check_header(entry["header"])
                elif "resumed" not in entry:
                    key = point_key(entry["point"]), int(entry[REPETITION])
                    self.rows[key], self.seconds[key] = entry["output"], float(entry["seconds"])
            except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
                raise ValueError(f"results: line {number} of {self._path.name} is not of a sweep") from error
        return whole

    def _check_header(self, header: Mapping[str, Any]) -> None:
        for name, value in self._identity.items():
            if header[name] != value:
                raise ValueError(
                    f"results: {self._path.name} belongs to another sweep ({name} was {header[name]!r}, "
                    f"is {value!r}); give another file or remove it"
                )


def _stamp() -> dict[str, Any]:
    return {"date": today(), "versions": versions()}


def identity_of(
    run_one: RunOne, recipe: str | None, seed: int, shared: Mapping[str, Any], paired: Sequence[str]
) -> dict[str, Any]:
    """What must agree before results may be mixed."""
    return {
        "recipe": recipe if recipe is not None else f"source {_source_hash(run_one)}",
        "seed": seed,
        "paired": sorted(paired),
        "shared": joblib.hash(dict(shared)),
        "adaptive_dp": adaptive_dp.__version__,
    }


def _source_hash(run_one: RunOne) -> str:
    """Hash of the text of a function; arguments bound by ``functools.partial`` count as well."""
    bound: list[str] = []
    function: Any = run_one
    while isinstance(function, functools.partial):
        bound.append(joblib.hash((function.args, function.keywords)))
        function = function.func
    try:
        # Python 3.13 answers for code made by exec with the text of another "<string>": python -c, for instance.
        if getattr(getattr(function, "__code__", None), "co_filename", "") in ("<string>", "<stdin>"):
            raise OSError("made by exec")
        text = inspect.getsource(function)
    except (OSError, TypeError) as error:
        raise ValueError(f"recipe must be given: the source of {function!r} cannot be read") from error
    # Two functions with one text differ by what they close over, by their defaults, or by the object they belong to.
    closed = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    owner = getattr(function, "__self__", None)
    held = (closed, getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None), owner)
    bound.append(joblib.hash(held))
    return hashlib.sha256("\n".join([inspect.cleandoc(text), *bound]).encode("utf-8")).hexdigest()[:16]
