"""The experiments of chapter 1 at the sizes of the paper; resumable, recorded under data/results.

usage: python tools/paper.py [--only NAME ...] [--kdd FILE] [--twitter FILE] [--jobs N] [--repetitions N]

Finished trials are kept in data/local (not committed): a run that was interrupted goes on where it stopped. The
summaries, with parameters, versions, seed and date, are what the book shows.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adaptive_dp.accuracy_first.experiment import paper_alphas, run_experiment, summarise_experiment
from adaptive_dp.accuracy_first.problems import prepare
from adaptive_dp.datasets import Dataset, load_bike, load_census_income, simulate_buzz
from adaptive_dp.experiments import save_results

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "data" / "results"
LOCAL = ROOT / "data" / "local"
SEED = 20261
LAM = 0.005
ROWS = 100_000


@dataclass(frozen=True)
class Experiment:
    """One data set of the paper's Section 4, or what stands in for it."""

    name: str
    repetitions: int
    load: Callable[[], Dataset]
    what: str


def experiments(kdd: Path | None, twitter: Path | None) -> list[Experiment]:
    """What can be run: two data sets that are files of the reader are added where their paths are given."""
    found = [
        Experiment(
            "buzz",
            80,
            lambda: simulate_buzz(ROWS, rng=np.random.default_rng(SEED)),
            "Buzz-like simulator, the paper's preparation",
        ),
        Experiment("bike", 80, load_bike, "Bike sharing, hourly"),
        Experiment("census", 40, lambda: load_census_income(rows=ROWS), "Census-Income (KDD)"),
    ]
    if kdd is not None:
        from adaptive_dp.datasets import load_kddcup99

        load = lambda: load_kddcup99(path=kdd, rows=ROWS)  # noqa: E731
        found.append(Experiment("kdd", 40, load, "KDD Cup 1999, 10 per cent file, the paper's preparation"))
    if twitter is not None:
        from adaptive_dp.datasets import load_twitter_buzz

        rng = np.random.default_rng(SEED)
        load = lambda: load_twitter_buzz(twitter).subsample(ROWS, rng)  # noqa: E731
        found.append(Experiment("twitter", 80, load, "Twitter buzz, the paper's data and preparation"))
    return found


def run(experiment: Experiment, *, jobs: int, repetitions: int | None) -> Path:
    """Run one experiment, or what is left of it, and record its summary."""
    start = time.perf_counter()
    problem = prepare(experiment.load(), lam=LAM)
    count = repetitions or experiment.repetitions
    trials = run_experiment(
        problem,
        alphas=paper_alphas(),
        repetitions=count,
        seed=SEED,
        n_jobs=jobs,
        results=LOCAL / f"accuracy-first-{experiment.name}.jsonl",
        progress=True,
        description=experiment.name,
    )
    path = RESULTS / f"accuracy-first-{experiment.name}.csv"
    parameters = {
        "data": experiment.what,
        "rows": problem.rows,
        "columns": problem.columns,
        "lam": LAM,
        "failure": 0.1,
        "levels": 1000,
        "repetitions": count,
        "null_excess_risk": float(f"{problem.excess_risk(np.zeros(problem.columns)):.6g}"),
        "minimiser_norm": float(f"{np.linalg.norm(problem.minimiser):.6g}"),
        "largest_trial_count": len(trials),
    }
    seconds = {
        "wall_seconds": round(time.perf_counter() - start, 1),
        "task_seconds": round(trials.attrs["task_seconds"], 1),
    }
    save_results(summarise_experiment(trials), path, {"parameters": parameters, "seed": SEED, **seconds})
    return path


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; the exit status is 2 for an unknown name."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", help="names of experiments: buzz, bike, census, kdd, twitter")
    parser.add_argument("--kdd", type=Path, help="a local copy of the KDD Cup 1999 10 per cent file")
    parser.add_argument("--twitter", type=Path, help="a local copy of Twitter.data")
    parser.add_argument("--jobs", type=int, default=-1, help="worker processes, -1 for all cores")
    parser.add_argument("--repetitions", type=int, help="trials a point, instead of the paper's 80 or 40")
    options = parser.parse_args(arguments)
    known = {item.name: item for item in experiments(options.kdd, options.twitter)}
    for name in options.only or list(known):
        if name not in known:
            print(f"unknown experiment {name!r}, known here: {', '.join(known)}", file=sys.stderr)
            return 2
        path = run(known[name], jobs=options.jobs, repetitions=options.repetitions)
        print(f"{name}: recorded in {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
