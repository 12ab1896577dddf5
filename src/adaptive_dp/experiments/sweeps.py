"""Seeded sweeps over a grid, in parallel and resumable."""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]
import pandas as pd
import threadpoolctl  # type: ignore[import-untyped]
from joblib.parallel import BACKENDS, get_active_backend  # type: ignore[import-untyped]
from tqdm import tqdm

from adaptive_dp.experiments.grid import REPETITION, Point, check_grid
from adaptive_dp.experiments.tasks import Memory, Outcome, Record, RunOne, Task, identity_of, run_task
from adaptive_dp.validation import check_count


def sweep(
    run_one: RunOne,
    grid: Sequence[Mapping[str, Any]],
    *,
    seed: int,
    repetitions: int,
    shared: Mapping[str, Any] | None = None,
    paired: Sequence[str] = (),
    n_jobs: int | None = None,
    results: str | Path | None = None,
    recipe: str | None = None,
    progress: bool | None = None,
    description: str = "",
) -> pd.DataFrame:
    """Run an experiment at every point of a grid, several times each.

    The result is the same for every number of workers and every order of the grid, and a point
    gives the same numbers whatever other points stand beside it. Linear algebra runs on one thread in
    every task, because the number of threads changes the last digits of a product.

    Parameters
    ----------
    run_one : callable
        ``run_one(rng, **shared, **point)`` returns a mapping of names to numbers, texts or truth
        values. All its randomness comes from ``rng``, a generator of its own.
    grid : sequence of mappings
        The points, each a mapping of names to scalars; see `product`.
    seed : int
        Base seed, not negative.
    repetitions : int
        Runs per point.
    shared : mapping, optional
        Large constants for all tasks, such as a data set. Arrays above 1 MB reach the workers as
        read-only memory maps, so a task must not write to them.
    paired : sequence of str
        Names of the grid that do not enter the random numbers: with ``paired=["method"]`` all
        methods meet the same numbers in the same repetition (common random numbers).
    n_jobs : int, optional
        Number of workers, -1 for all cores. ``None`` means one, or what an enclosing
        ``joblib.parallel_config`` says.
    results : path, optional
        File of finished tasks, one JSON object a line. If it exists, what it holds is not run again.
        With the backends of multiprocessing and Ray, which return nothing before the end, it is
        written at the end.
    recipe : str, optional
        Name and version of the experiment. It takes the place of the source text of ``run_one`` in
        deciding whether a results file belongs to this sweep; change it when the meaning of the
        results changes, also by a change elsewhere in the code.
    progress : bool, optional
        Progress bar on stderr: always, never, or (``None``) only in a terminal, so that the stored
        outputs of a notebook stay the same.
    description : str
        Words in front of the progress bar.

    Returns
    -------
    pandas.DataFrame
        One row per task, in the order of the grid and then of the repetitions: the columns of the
        point, ``repetition``, and what ``run_one`` returned. ``attrs`` hold ``seed``,
        ``repetitions`` and ``task_seconds``, the time spent inside tasks, also in earlier runs.

    Raises
    ------
    RuntimeError
        If a task fails; the message names the point, the repetition and the seed. What was finished
        is in the results file.
    ValueError
        If the grid is empty or repeats a point, a name occurs twice, or the results file belongs to
        another experiment, seed, shared data or version of this package.
    TypeError
        If a value of the grid is not a scalar, or ``run_one`` is no callable.
    """
    if not callable(run_one):
        raise TypeError(f"run_one must be callable, got {type(run_one).__name__}: {run_one!r}")
    shared = dict(shared or {})
    points = check_grid(grid, reserved=[REPETITION, *shared])
    if not isinstance(paired, str):
        paired = list(paired)  # a generator would be used up by the check
    _check_paired(paired, points)
    base = check_count("seed", seed, minimum=0)
    tasks = [
        Task(point, number) for point in points for number in range(check_count("repetitions", repetitions))
    ]
    with contextlib.ExitStack() as stack:
        record: Record | Memory = Memory()
        if results is not None:
            identity = identity_of(run_one, recipe, base, shared, paired)
            record = stack.enter_context(Record(Path(results), identity))
        todo = [task for task in tasks if task.key not in record.rows]
        bar = stack.enter_context(
            tqdm(
                total=len(tasks),
                initial=len(tasks) - len(todo),
                desc=description or None,
                disable=None if progress is None else not progress,
            )
        )
        outcomes = stack.enter_context(_closing(_outcomes(run_one, todo, shared, base, paired, n_jobs)))
        for outcome in outcomes:
            if outcome.failure:
                raise _failure(outcome, base)
            record.add(outcome)
            bar.update()
    rows = [{**task.point, REPETITION: task.repetition, **record.rows[task.key]} for task in tasks]
    frame = pd.DataFrame.from_records(rows)
    seconds = math.fsum(record.seconds[task.key] for task in tasks)
    frame.attrs.update(seed=base, repetitions=repetitions, task_seconds=seconds)
    return frame


def _failure(outcome: Outcome, seed: int) -> RuntimeError:
    """The error of a failed task; the worker's traceback comes as a note below the message."""
    task = outcome.task
    error = RuntimeError(
        f"run_one failed at {task.point!r}, repetition {task.repetition}, seed {seed}: {outcome.failure}"
    )
    error.add_note(outcome.details)
    return error


@contextlib.contextmanager
def _closing(outcomes: Generator[Outcome, None, None]) -> Iterator[Iterator[Outcome]]:
    """Stop the workers on the way out; joblib's warning about work thrown away adds nothing to the error."""
    try:
        yield outcomes
    finally:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*tasks", category=UserWarning)
            outcomes.close()


def _check_paired(paired: Sequence[str], points: Sequence[Point]) -> None:
    if isinstance(paired, str):
        raise TypeError(f"paired must be a list of names, got the text {paired!r}")
    for name in paired:
        if not any(name in point for point in points):
            raise ValueError(f"paired names {name!r}, which no point of the grid sets")


def _outcomes(
    run_one: RunOne,
    tasks: Sequence[Task],
    shared: Mapping[str, Any],
    seed: int,
    paired: Sequence[str],
    n_jobs: int | None,
) -> Generator[Outcome, None, None]:
    """Results as they become ready; joblib itself gathers quick tasks into batches.

    A few backends (multiprocessing, Ray) hand all of them back at the end.
    """
    backend, _ = get_active_backend()
    with contextlib.ExitStack() as stack:
        stack.enter_context(threadpoolctl.threadpool_limits(limits=1))
        if isinstance(backend, BACKENDS.get("loky", ())):
            # Libraries that a worker loads after its start take their number of threads from here.
            stack.enter_context(joblib.parallel_config("loky", inner_max_num_threads=1))
        one_by_one = getattr(get_active_backend()[0], "supports_return_generator", False)
        parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered" if one_by_one else "list")
        call = joblib.delayed(run_task)
        yield from parallel(call(run_one, task, shared, seed, paired, os.getpid()) for task in tasks)
