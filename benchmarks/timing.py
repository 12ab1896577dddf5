"""Ratios of running times within one run: what is left of a time when the machine is taken out of it.

Beside the timing stands what every benchmark shares: a check that both sides compute the same, and the command line.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import threadpoolctl  # type: ignore[import-untyped]

from adaptive_dp.experiments.versions import today, versions
from adaptive_dp.validation import FloatArray

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Setting = TypeVar("Setting", bound=DataclassInstance)

RESULTS = Path(__file__).resolve().parent.parent / "data" / "results"
HEADING = "How many times longer the second takes (median, least to largest):"

Task = Callable[[], object]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How much longer ``against`` takes than ``measured``: one ratio a repetition, and median seconds of a call."""

    name: str
    measured: str
    against: str
    ratios: tuple[float, ...]
    seconds: float
    seconds_against: float

    def summary(self) -> dict[str, float]:
        """Median, least and largest ratio, to three digits."""
        found = {"ratio": median(self.ratios), "low": min(self.ratios), "high": max(self.ratios)}
        return {name: float(f"{value:.3g}") for name, value in found.items()}

    def times(self, factor: float) -> Comparison:
        """The comparison as if ``against``, which did a part of the work, had done ``factor`` times as much."""
        return replace(
            self,
            ratios=tuple(factor * ratio for ratio in self.ratios),
            seconds_against=factor * self.seconds_against,
        )


def compare(
    name: str,
    measured: tuple[str, Task],
    against: tuple[str, Task],
    *,
    repetitions: int,
    block: float,
    against_once: bool = False,
    clock: Clock = time.process_time,
) -> Comparison:
    """Time two tasks in turn, the first one first in every other repetition.

    The clock is the processor time of this process: other work on the machine lengthens it through shared caches
    alone. ``block`` is the least time in seconds between two looks at the clock; short tasks are repeated.
    ``against_once`` runs a slow second task a single time, halfway; the spread of the ratios is then that of the
    first task alone.
    """
    label, task = measured
    label_against, task_against = against
    calls = _calls(task, block, clock)
    calls_against = 1 if against_once else _calls(task_against, block, clock)
    times: list[float] = []
    times_against: list[float] = []
    for repetition in range(repetitions):
        sides = [(times, task, calls)]
        if not against_once or repetition == repetitions // 2:
            sides.append((times_against, task_against, calls_against))
        for kept, each, count in sides if repetition % 2 == 0 else reversed(sides):
            kept.append(seconds_of(each, count, clock))
    pairs = zip(times, times_against * (repetitions if against_once else 1), strict=True)
    ratios = tuple(slow / fast for fast, slow in pairs)
    return Comparison(name, label, label_against, ratios, median(times), median(times_against))


def seconds_of(task: Task, calls: int = 1, clock: Clock = time.process_time) -> float:
    """Seconds of one call, as the mean of several without a look at the clock in between."""
    start = clock()
    for _ in range(calls):
        task()
    return (clock() - start) / calls


def _calls(task: Task, block: float, clock: Clock) -> int:
    """How many calls fill a block; the first call fills caches and is not counted."""
    task()
    return max(1, math.ceil(block / max(seconds_of(task, 1, clock), 1e-7)))


def peak_mebibytes() -> float:
    """Largest resident memory of this process so far, in MiB; NaN where the system does not say."""
    if sys.platform == "win32":
        return math.nan
    import resource

    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def three_digits(value: float) -> str:
    """Three significant digits without an exponent for numbers of everyday size: 1,030 and 0.0742."""
    return f"{float(f'{value:.3g}'):,g}"


def show(comparison: Comparison) -> str:
    """One comparison as three lines of text."""
    ratio, low, high = (three_digits(value) for value in comparison.summary().values())
    fast, slow = (three_digits(1e3 * each) for each in (comparison.seconds, comparison.seconds_against))
    return (
        f"{comparison.name}\n"
        f"    {ratio:>8} x  ({low} to {high}, {len(comparison.ratios)} repetitions)\n"
        f"    {comparison.measured}: {fast} ms; {comparison.against}: {slow} ms"
    )


def record(comparisons: Sequence[Comparison], path: Path, parameters: Mapping[str, Any]) -> None:
    """Write ratios, parameters, versions and date as JSON; seconds are left out, they belong to a machine."""
    content = {
        "parameters": dict(parameters),
        "date": today(),
        "versions": versions(),
        "ratios": [
            {
                "name": item.name,
                "measured": item.measured,
                "against": item.against,
                **item.summary(),
                "repetitions": len(item.ratios),
            }
            for item in comparisons
        ],
    }
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def agree(
    what: str, library: FloatArray, baseline: FloatArray, *, rtol: float = 1e-9, atol: float = 1e-14
) -> None:
    """Refuse to time two computations of different things."""
    if not np.allclose(library, baseline, rtol=rtol, atol=atol):
        raise AssertionError(f"{what} must agree: largest difference {np.abs(library - baseline).max():.3g}")


def run(
    module: str,
    about: str | None,
    work: Callable[[Setting, np.random.Generator], Iterator[Comparison]],
    *,
    full: Setting,
    quick: Setting,
    seed: int,
    arguments: list[str] | None,
) -> int:
    """Command line of a benchmark: print all comparisons of ``work``; ``--record`` keeps the ratios.

    ``work`` may print what is for information; it runs with one BLAS thread. ``about`` is the docstring of the module.
    """
    target = RESULTS / f"benchmarks-{module.replace('_', '-')}.json"
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{module}", description=(about or "").splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, seconds: does it run at all?")
    parser.add_argument(
        "--record", nargs="?", type=Path, const=target, metavar="FILE", help=f"default: {target.name}"
    )
    options = parser.parse_args(arguments)
    setting = quick if options.quick else full
    found: list[Comparison] = []
    with threadpoolctl.threadpool_limits(limits=1):
        for comparison in work(setting, np.random.default_rng(seed)):
            print(show(comparison), flush=True)
            found.append(comparison)
    if options.record is not None:
        record(found, options.record, {**asdict(setting), "seed": seed})
    return 0
