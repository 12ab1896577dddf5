"""Figure 3.1 at the size of the thesis; resumable, recorded under data/results.

usage: python tools/paper_ptr_regression.py [--jobs N] [--repetitions N]

Finished trials are kept in data/local (not committed): a run that was interrupted goes on where it stopped. The
summary, with parameters, versions, seed and date, is what the book shows.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import pandas as pd

from adaptive_dp.experiments import save_results
from adaptive_dp.ptr.flaws_regression import additions_at_printed_epsilon
from adaptive_dp.ptr.regression_experiment import (
    DATA,
    OPS_PTR,
    PROPOSALS,
    TAU,
    claims_of_figure,
    compare_regressions,
    regression_settings,
)

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "data" / "results"
LOCAL = ROOT / "data" / "local"
SEED = 20263
DELTA = 1e-6


def record(jobs: int, repetitions: int | None) -> list[Path]:
    """Run the experiment, or what is left of it, and record errors, claims and the printed theorem's failures."""
    settings = regression_settings("paper")
    count = repetitions or settings["repetitions"]
    start = time.perf_counter()
    people = {name: DATA[name]() for name in settings["data"]}
    table = compare_regressions(
        people,
        epsilons=settings["epsilons"],
        repetitions=count,
        delta=DELTA,
        seed=SEED,
        jobs=jobs,
        results=lambda name: LOCAL / f"ptr-regression-{name}.jsonl",
        progress=True,
    )
    parameters = {
        "data": {name: f"{data.title}, {data.rows} x {data.columns}" for name, data in people.items()},
        "split": [0.6, 0.1, 0.3],
        "rows": "scaled to l2 norm 1 one by one, after public ranges",
        "delta": DELTA,
        "proposals": PROPOSALS,
        "lams": "2.5 to 2.5^10 on a logarithmic scale",
        "tau": TAU,
        "repetitions": count,
    }
    metadata = {
        "parameters": parameters,
        "seed": SEED,
        "wall_seconds": round(time.perf_counter() - start, 1),
        "task_seconds": round(table.attrs["task_seconds"], 1),
    }
    claims = [
        claims_of_figure(table, version, statistic=statistic).assign(version=version, statistic=statistic)
        for statistic in ("mean", "median")
        for version in OPS_PTR
    ]
    frames = {
        "errors": table,
        "claims": pd.concat(claims, ignore_index=True),
        "printed": additions_at_printed_epsilon(delta=DELTA),
    }
    paths = []
    for name, frame in frames.items():
        path = RESULTS / f"ptr-regression-{name}.csv"
        save_results(frame, path, metadata)
        paths.append(path)
    return paths


def main(arguments: list[str] | None = None) -> int:
    """Run and record; the exit status is 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1, help="worker processes, -1 for all cores")
    parser.add_argument("--repetitions", type=int, help="repetitions a point, instead of the usual number")
    options = parser.parse_args(arguments)
    for path in record(options.jobs, options.repetitions):
        print(f"recorded in {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
