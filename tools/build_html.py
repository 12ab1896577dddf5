"""Render the stored outputs to HTML; every warning is an error. Nothing is executed.

usage: python -m tools.build_html [--output FOLDER]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools.paths import BUILD, ROOT


def command(output: Path) -> list[str]:
    """Return the command that builds the book into ``output/_build/html``."""
    return [
        *(str(Path(sys.executable).with_name("jupyter-book")), "build", str(ROOT)),
        *("-W", "-n", "--keep-going", "-q", "--path-output", str(output)),
    ]


def build(output: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Build every page afresh, so that no warning hides behind a cached page; capture what is printed."""
    for name in ("html", ".doctrees"):
        shutil.rmtree(output / "_build" / name, ignore_errors=True)
    return subprocess.run(
        command(output), cwd=ROOT, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def main(arguments: list[str] | None = None) -> int:
    """Build, and say where to open the book."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.build_html", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--output", type=Path, default=BUILD.parent, help="default: the top folder")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    done = build(options.output)
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        print("The book was not built without warnings; see above.", file=sys.stderr)
        return done.returncode
    page = options.output.resolve() / "_build" / "html" / "index.html"
    print(f"HTML built in {time.perf_counter() - start:.0f} s. Open {page.as_uri()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
