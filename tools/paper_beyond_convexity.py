"""Figure 1 of Neel et al. (2019) at its size: 15 runs, nine epsilons; resumable, recorded under data/results.

usage: python tools/paper_beyond_convexity.py [--only NAME ...] [--jobs N] [--runs N]

One file for each reading of the columns that the paper does not name. Finished runs are kept in data/local (not
committed): a run that was interrupted goes on where it stopped. The runs, with parameters, versions, seed and date, are
what the book shows.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd

from adaptive_dp.experiments import save_results
from adaptive_dp.oracle_perturbation.adult_experiment import (
    COLUMNS,
    GRID,
    adult_runs,
    adult_settings,
    make_arena,
    reference_accuracies,
)
from adaptive_dp.oracle_perturbation.adult_grids import TUNING_RUNS, adult_tuning, tuned_settings
from adaptive_dp.oracle_perturbation.discrete_privacy import GAP

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "data" / "results"
LOCAL = ROOT / "data" / "local"
SEED = 20264
PAPER = adult_settings("paper")


def record(name: str, jobs: int, runs: int | None, results: Path = RESULTS, local: Path = LOCAL) -> Path:
    """Run the figure for one set of columns, or what is left of it, and record it."""
    start = time.perf_counter()
    settings = {key: value for key, value in PAPER.items() if key != "columns"}
    settings["runs"] = runs or settings["runs"]
    common: dict[str, Any] = {"seed": SEED, "jobs": jobs, "progress": True}
    tuned = adult_tuning(
        name,
        epsilons=settings["epsilons"],
        results=local / f"beyond-convexity-{name}-grids.jsonl",
        **common,
    )
    table = adult_runs(
        name,
        **settings,
        tuned=tuned_settings(tuned),
        results=local / f"beyond-convexity-{name}.jsonl",
        **common,
    )
    arena = make_arena(name, settings["rows"], SEED)
    references = reference_accuracies(arena)
    parameters = {
        "data": f"{arena.plain.title}, {arena.plain.rows} x {arena.plain.columns}",
        "columns": list(arena.plain.names),
        "rows": f"entries in [0, 1], rounded to 1 / {GRID}",
        "delta": arena.delta,
        "gap": GAP,
        "runs": settings["runs"],
        "runs a setting of the grids": TUNING_RUNS,
        "tuned": _plain(tuned.drop(columns="repetition")),
        "references": {key: float(f"{value:.6g}") for key, value in references.items()},
    }
    seconds = table.attrs["task_seconds"] + tuned.attrs["task_seconds"]
    metadata = {
        "parameters": parameters,
        "seed": SEED,
        "wall_seconds": round(time.perf_counter() - start, 1),
        "task_seconds": round(seconds, 1),
    }
    path = results / f"beyond-convexity-{name}.csv"
    save_results(table, path, metadata)
    return path


def _plain(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows for a JSON file, without what is missing in them."""
    return [
        {
            str(key): value
            for key, value in row.items()
            if not (isinstance(value, float) and math.isnan(value))
        }
        for row in frame.to_dict("records")
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; the exit status is 2 for an unknown name."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", help=f"sets of columns: {', '.join(COLUMNS)}")
    parser.add_argument("--jobs", type=int, default=-1, help="worker processes, -1 for all cores")
    parser.add_argument("--runs", type=int, help="runs a point, instead of the paper's 15")
    options = parser.parse_args(arguments)
    for name in options.only or list(COLUMNS):
        if name not in COLUMNS:
            print(f"unknown columns {name!r}, known here: {', '.join(COLUMNS)}", file=sys.stderr)
            return 2
        path = record(name, options.jobs, options.runs)
        print(f"{name}: recorded in {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
