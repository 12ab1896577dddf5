"""General solvers against exact oracles on Adult, with a limit on each solve; recorded under data/results.

usage: python tools/paper_beyond_convexity_solvers.py [--seconds S]

About five minutes at the default of 30 seconds a solve, in one thread. Needs the extras "solvers" and "fast".
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from adaptive_dp.experiments import save_results
from adaptive_dp.oracle_perturbation.solver_comparison import record_comparison

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "data" / "results"
NAME = "beyond-convexity-solvers"
SEED = 20265
SECONDS = 30.0


def record(seconds: float, results: Path = RESULTS) -> Path:
    """Run the comparison and record it."""
    start = time.perf_counter()
    table = record_comparison(SEED, seconds=seconds)
    parameters = {
        "data": "Adult (neel), balanced, features in units of 1/1000",
        "space": "integer halfspaces, |w|^2 <= d",
        "noise": "norm-exponential, replace one record, one draw a row",
        "ties": "errors",
        "limit in seconds": seconds,
        "threads": 1,
        "exact": "enumeration beside one group of indicators; branch and bound with 23 columns",
        "seconds": "of the processor",
    }
    path = results / f"{NAME}.csv"
    wall = round(time.perf_counter() - start, 1)
    save_results(table, path, {"parameters": parameters, "seed": SEED, "wall_seconds": wall})
    return path


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison; the exit status is 2 for an impossible limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="limit on each solve")
    options = parser.parse_args(arguments)
    if not options.seconds > 0:
        print(f"--seconds must be positive, got {options.seconds}", file=sys.stderr)
        return 2
    path = record(options.seconds)
    print(f"recorded in {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
