"""Figure 3.2 at the size of the thesis: teachers of digits, and three analyses of their noisy labels.

usage: python tools/paper_ptr_pate.py [--only NAME ...] [--jobs N]

"votes" trains the 400 teachers (about half a minute) and records what they vote on 200 queries of each kind; the others
read that file and take a minute together.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from adaptive_dp.datasets import load_mnist14
from adaptive_dp.experiments import load_results, save_results, summarise
from adaptive_dp.ptr.pate_experiment import (
    CONSENSUS,
    DELTA,
    INVERSE_RIDGE,
    SHARES,
    Queries,
    choose_queries,
    figure_tests,
    pate_settings,
    privacy_against_sigma,
    queries_from,
    student_against_sigma,
    teacher_votes,
)

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "data" / "results"
SEED = 20263
TEACHERS, QUERIES = 400, 200
PAPER = pate_settings("paper")
Outcome = tuple[pd.DataFrame, dict[str, Any]]


def votes(jobs: int) -> Outcome:
    """Train the teachers on the training images and let them vote on test images."""
    train, test = load_mnist14("train"), load_mnist14("test")
    rng = np.random.default_rng(SEED)
    counts = teacher_votes(train, test.features, teachers=TEACHERS, rng=rng, jobs=jobs)
    right = float(np.mean(counts.argmax(axis=1) == test.labels))
    single = float(counts[np.arange(test.rows), test.labels.astype(int)].mean() / TEACHERS)
    frames = []
    for consensus in CONSENSUS:
        images = choose_queries(counts, consensus=consensus, count=QUERIES, rng=rng)
        chosen = Queries(consensus, images, test.labels[images].astype(np.int64), counts[images])
        frames.append(chosen.frame())
    parameters = {
        "data": f"{train.title}, queries from {test.title}",
        "teachers": TEACHERS,
        "images a teacher": train.rows // TEACHERS,
        "queries": QUERIES,
        "shares": {name: list(ends) for name, ends in SHARES.items()},
        "inverse ridge": INVERSE_RIDGE,
        "accuracy of a teacher": round(single, 4),
        "accuracy of the plurality": round(right, 4),
    }
    return pd.concat(frames, ignore_index=True), parameters


def privacy(jobs: int) -> Outcome:
    """Figure 3.2: epsilon of the labels against sigma by three analyses."""
    del jobs
    frames = []
    for consensus, chosen in recorded_queries().items():
        frame = privacy_against_sigma(
            chosen.votes,
            PAPER["sigmas"],
            tests=figure_tests(),
            trials=PAPER["trials"],
            rng=np.random.default_rng(SEED),
        )
        frame.insert(0, "consensus", consensus)
        frames.append(frame)
    parameters = {"delta": DELTA, "trials": PAPER["trials"], "teachers": TEACHERS, "queries": QUERIES}
    return pd.concat(frames, ignore_index=True), parameters


def student(jobs: int) -> Outcome:
    """Accuracy of noisy labels and of students that learn from them: means over repetitions."""
    del jobs
    test = load_mnist14("test")
    frames = []
    for chosen in recorded_queries().values():
        frame = student_against_sigma(
            chosen,
            test,
            PAPER["sigmas"][::2],
            repetitions=PAPER["repetitions"],
            rng=np.random.default_rng(SEED),
        )
        frames += [
            summarise(frame, ["consensus", "sigma"], value).assign(quantity=value)
            for value in ("labels", "student")
        ]
    parameters = {"repetitions": PAPER["repetitions"], "queries": QUERIES, "judged on": test.rows - QUERIES}
    return pd.concat(frames, ignore_index=True), parameters


def recorded_queries() -> dict[str, Queries]:
    """What "votes" recorded, by consensus."""
    frame, _ = load_results(RESULTS / "ptr-pate-votes.csv")
    return {consensus: queries_from(frame, consensus) for consensus in CONSENSUS}


EXPERIMENTS: dict[str, Callable[[int], Outcome]] = {"votes": votes, "privacy": privacy, "student": student}


def record(name: str, jobs: int) -> Path:
    """Run one experiment and record it."""
    start = time.perf_counter()
    table, parameters = EXPERIMENTS[name](jobs)
    path = RESULTS / f"ptr-pate-{name}.csv"
    seconds = round(time.perf_counter() - start, 1)
    save_results(table, path, {"parameters": parameters, "seed": SEED, "wall_seconds": seconds})
    return path


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; the exit status is 2 for an unknown name."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", help=f"names of experiments: {', '.join(EXPERIMENTS)}")
    parser.add_argument("--jobs", type=int, default=-1, help="worker processes, -1 for all cores")
    options = parser.parse_args(arguments)
    for name in options.only or list(EXPERIMENTS):
        if name not in EXPERIMENTS:
            print(f"unknown experiment {name!r}, known here: {', '.join(EXPERIMENTS)}", file=sys.stderr)
            return 2
        path = record(name, options.jobs)
        print(f"{name}: recorded in {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
