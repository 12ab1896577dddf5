"""Run everything that continuous integration runs, in the order in which faults are cheapest to find.

usage: python -m tools.check [STEP ...]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

from tools.kernel import kernel_environment
from tools.paths import ROOT

PYTEST = [sys.executable, "-m", "pytest"]
# A notebook is one story: its cells must stay in one worker.
PARALLEL = ["-n", "2", "--dist", "loadfile"]

STEPS: dict[str, tuple[str, list[str]]] = {
    "lint": ("ruff check", [sys.executable, "-m", "ruff", "check", "."]),
    "format": ("ruff format --check", [sys.executable, "-m", "ruff", "format", "--check", "."]),
    "types": ("mypy --strict", [sys.executable, "-m", "mypy"]),
    "ledger": ("ledger of claims", [sys.executable, "-m", "tools.ledger"]),
    "tests": (
        "library, notebooks at profile quick (papermill), book built with warnings as errors",
        [*PYTEST, "tests", "src", "--doctest-modules", *PARALLEL, "--cov=adaptive_dp", "--cov-report=term"],
    ),
    "outputs": (
        "stored outputs against a fresh run (nbval, strict)",
        [
            *PYTEST,
            "book",
            "--nbval",
            "--nbval-current-env",
            "--nbval-sanitize-with",
            "tests/nbval.cfg",
            *PARALLEL,
        ],
    ),
    "figures": ("stored figures against a fresh run", [sys.executable, "-m", "tools.execute", "--check"]),
}


def run(name: str) -> bool:
    """Run one step, showing what it prints; return whether it passed."""
    title, command = STEPS[name]
    print(f"\n=== {name}: {title}", flush=True)
    start = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, check=False, env={**os.environ, **kernel_environment()})
    verdict = "passed" if done.returncode == 0 else f"FAILED (exit status {done.returncode})"
    print(f"=== {name}: {verdict} in {time.perf_counter() - start:.0f} s", flush=True)
    return done.returncode == 0


def main(arguments: list[str] | None = None) -> int:
    """Run the steps; all of them, even after a failure, so that one run shows everything."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.check", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("steps", nargs="*", choices=[*STEPS, []], help="default: all")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    failed = [name for name in options.steps or STEPS if not run(name)]
    total = time.perf_counter() - start
    if failed:
        print(f"\nFAILED after {total:.0f} s: {', '.join(failed)}")
        return 1
    print(f"\nAll checks passed in {total:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
