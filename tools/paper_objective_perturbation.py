"""Figure 4.2 at the size of the thesis: objective perturbation against DP-SGD; resumable, recorded under data/results.

usage: python tools/paper_objective_perturbation.py [--only NAME ...] [--jobs N] [--trials N]

Finished trials are kept in data/local (not committed): a run that was interrupted goes on where it stopped. The
summaries, with parameters, versions, seed and date, are what the book shows.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from adaptive_dp.datasets import load_benchmark
from adaptive_dp.experiments import save_results
from adaptive_dp.objective_perturbation.experiment import (
    BATCH,
    CURVATURE,
    DELTA,
    FACTOR,
    SCORE_FACTOR,
    SIGMA_OUT,
    TAU,
    race,
    race_settings,
)
from adaptive_dp.objective_perturbation.tuning import MEAN

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "data" / "results"
LOCAL = ROOT / "data" / "local"
SEED = 20264
PAPER = race_settings("paper")
NAMES = {data.lower(): data for data in PAPER["data"]}


def record(name: str, jobs: int, trials: int | None) -> Path:
    """Run one panel of the figure, or what is left of it, and record it."""
    start = time.perf_counter()
    settings = {key: value for key, value in PAPER.items() if key != "data"}
    settings["trials"] = trials or settings["trials"]
    table = race(
        NAMES[name],
        **settings,
        seed=SEED,
        jobs=jobs,
        results=LOCAL / f"objective-perturbation-{name}.jsonl",
        progress=True,
    )
    benchmark = load_benchmark(NAMES[name])
    parameters = {
        "data": f"{benchmark.train.title}, {benchmark.train.rows} + {benchmark.test.rows} x {benchmark.train.columns}",
        "rows": "scaled to l2 norm 1 one by one, then a bias of 1",
        "delta": DELTA,
        "trials": settings["trials"],
        "epochs": settings["epochs"],
        "expected batch": BATCH,
        "mean number of honest runs": MEAN,
        "noise on private scores over the Gaussian mechanism's": SCORE_FACTOR,
        "tau": TAU,
        "sigma_out": SIGMA_OUT,
        "factor": FACTOR,
        "curvature": CURVATURE,
    }
    metadata = {
        "parameters": parameters,
        "seed": SEED,
        "wall_seconds": round(time.perf_counter() - start, 1),
        "task_seconds": round(table.attrs["task_seconds"], 1),
    }
    path = RESULTS / f"objective-perturbation-{name}.csv"
    save_results(table, path, metadata)
    return path


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; the exit status is 2 for an unknown name."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", help=f"names of data sets: {', '.join(NAMES)}")
    parser.add_argument("--jobs", type=int, default=-1, help="worker processes, -1 for all cores")
    parser.add_argument("--trials", type=int, help="trials a point, instead of the thesis's 10")
    options = parser.parse_args(arguments)
    for name in options.only or list(NAMES):
        if name not in NAMES:
            print(f"unknown data set {name!r}, known here: {', '.join(NAMES)}", file=sys.stderr)
            return 2
        path = record(name, options.jobs, options.trials)
        print(f"{name}: recorded in {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
