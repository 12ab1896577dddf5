"""Create ``.venv`` from ``requirements.lock`` with nothing but the standard library and pip.

Every archive is checked against the hashes of the lock, then the library is installed editable. A
stamp remembers what was installed, so that a second call costs nothing.

usage: python3 -m tools.setup [--force]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

from tools.paths import LOCK, ROOT

OLDEST, NEWEST = (3, 11), (3, 13)
ENVIRONMENT = ROOT / ".venv"
STAMP = ENVIRONMENT / "installed.txt"


def interpreter(environment: Path = ENVIRONMENT) -> Path:
    """Return the Python of a virtual environment."""
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def check_version(version: tuple[int, int]) -> None:
    """Refuse an interpreter that the lock was not resolved for.

    Raises
    ------
    SystemExit
        ``version`` is not between 3.11 and 3.13.
    """
    if not OLDEST <= version <= NEWEST:
        supported = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
        raise SystemExit(
            f"Python {supported} is needed, this is {version[0]}.{version[1]} ({sys.executable}). "
            "Name another one: make PYTHON=/path/to/python3.11"
        )


def fingerprint(python: tuple[int, int]) -> str:
    """Return what the environment depends on: the lock, the project file and the Python version."""
    parts = [
        f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in (LOCK, ROOT / "pyproject.toml")
    ]
    return "\n".join([f"python {python[0]}.{python[1]}", *parts]) + "\n"


def is_current(python: tuple[int, int]) -> bool:
    """Whether the environment was installed from exactly these files and still starts."""
    return (
        interpreter().exists()
        and STAMP.exists()
        and STAMP.read_text(encoding="utf-8") == fingerprint(python)
        and subprocess.run([interpreter(), "-c", ""], check=False).returncode == 0
    )


def create() -> None:
    """Create the virtual environment, or say what is missing."""
    try:
        # A new pip is in the lock's neighbourhood only by chance; the bundled one knows --require-hashes.
        venv.create(ENVIRONMENT, with_pip=True, clear=True, symlinks=os.name != "nt")
    except subprocess.CalledProcessError as error:
        raise SystemExit(
            "Python could not create a virtual environment. Debian and Ubuntu keep the needed part in a "
            f"package of its own: apt-get install python3-venv\n({error})"
        ) from error


def install() -> None:
    """Install the lock, every archive checked by hash, and then the library itself, editable."""
    pip = [str(interpreter()), "-m", "pip", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--require-hashes", "--requirement", str(LOCK)], check=True)
    # Without build isolation the build uses the locked setuptools and fetches nothing that has no hash.
    subprocess.run(
        [*pip, "--quiet", "--no-deps", "--no-build-isolation", "--editable", str(ROOT)], check=True
    )


def main(arguments: list[str] | None = None) -> int:
    """Set the environment up if it is not current."""
    parser = argparse.ArgumentParser(prog="python3 -m tools.setup", description=__doc__.splitlines()[0])
    parser.add_argument("--force", action="store_true", help="start again from an empty environment")
    options = parser.parse_args(arguments)
    version = sys.version_info[:2]
    check_version(version)
    if not options.force and is_current(version):
        return 0
    print("Setting up .venv from requirements.lock (once; a minute or two) ...", flush=True)
    start = time.perf_counter()
    create()
    try:
        install()
    except subprocess.CalledProcessError as error:
        print(f"Installation failed: {error}", file=sys.stderr)
        return 1
    STAMP.write_text(fingerprint(version), encoding="utf-8")
    print(f"Environment ready in {time.perf_counter() - start:.0f} s.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
