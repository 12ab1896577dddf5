"""Create ``.venv`` from ``requirements.lock`` with nothing but the standard library and pip.

Every archive is checked against the hashes of the lock, then the library is installed editable. A
stamp remembers what was installed, so that a second call costs nothing.

usage: python3 -m tools.setup [--force]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
import tomllib
import venv
from pathlib import Path

from tools.paths import LOCK, ROOT

OLDEST, NEWEST = (3, 11), (3, 13)
ENVIRONMENT = ROOT / ".venv"
STAMP = ENVIRONMENT / "installed.json"


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


def digest(text: bytes) -> str:
    """Return 16 hexadecimal digits of SHA-256."""
    return hashlib.sha256(text).hexdigest()[:16]


def fingerprint(python: tuple[int, int]) -> dict[str, str]:
    """Return what the environment depends on: the Python version, the lock, and how the library is built.

    Of ``pyproject.toml`` only the tables that describe the package count: changing a rule of the linter must not
    install anything again.
    """
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    package = [tables["build-system"], tables["project"], tables["tool"]["setuptools"]]
    return {
        "python": f"{python[0]}.{python[1]}",
        "lock": digest(LOCK.read_bytes()),
        "package": digest(json.dumps(package, sort_keys=True).encode()),
    }


def installed(python: tuple[int, int]) -> dict[str, str]:
    """Return the fingerprint of the environment that is there; empty if none starts under ``python``."""
    if not STAMP.exists() or not interpreter().exists():
        return {}
    if subprocess.run([interpreter(), "-c", ""], check=False).returncode:
        return {}
    stamp: dict[str, str] = json.loads(STAMP.read_text(encoding="utf-8"))
    return stamp if stamp.get("python") == f"{python[0]}.{python[1]}" else {}


def create() -> None:
    """Create the virtual environment, or say what is missing."""
    try:
        venv.create(ENVIRONMENT, with_pip=True, clear=True, symlinks=os.name != "nt")
    except subprocess.CalledProcessError as error:
        raise SystemExit(
            "Python could not create a virtual environment. Debian and Ubuntu keep the needed part in a "
            f"package of its own: apt-get install python3-venv\n({error})"
        ) from error


def pip_install(*arguments: str) -> None:
    """Run pip; show a running count instead of a line for each archive, and everything if it fails.

    Raises
    ------
    SystemExit
        pip failed.
    """
    command = [str(interpreter()), "-m", "pip", "--disable-pip-version-check", "install", *arguments]
    log, count = [], 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            log.append(line)
            count += line.startswith(("Collecting ", "Processing ", "Requirement already "))
            if count and line.startswith("Installing collected"):
                print(f"    {count} archives checked, installing ...", flush=True)
            elif count and count % 25 == 0 and line.startswith(("Collecting ", "Processing ")):
                print(f"    {count} archives ...", flush=True)
    if process.returncode:
        raise SystemExit("".join(log) + f"Installation failed: {' '.join(command)}")


def install(old: dict[str, str], new: dict[str, str]) -> None:
    """Install the lock, every archive checked by hash, and the library, editable; each only if it changed."""
    if old.get("lock") != new["lock"]:
        pip_install("--require-hashes", "--requirement", str(LOCK))
    # Without build isolation the build uses the locked setuptools and fetches nothing that has no hash.
    pip_install("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    STAMP.write_text(json.dumps(new, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Set the environment up if it is not current."""
    parser = argparse.ArgumentParser(prog="python3 -m tools.setup", description=__doc__.splitlines()[0])
    parser.add_argument("--force", action="store_true", help="start again from an empty environment")
    options = parser.parse_args(arguments)
    version = sys.version_info[:2]
    check_version(version)
    new, old = fingerprint(version), {} if options.force else installed(version)
    if new == old:
        return 0
    start = time.perf_counter()
    if not old:
        print("Creating .venv from requirements.lock (once; one to five minutes) ...", flush=True)
        create()
    install(old, new)
    print(f"Environment ready in {time.perf_counter() - start:.0f} s.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
