"""Find and read the committed data files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

VARIABLE = "ADAPTIVE_DP_DATA"


def data_folder() -> Path:
    """Return the folder of the data files: ``$ADAPTIVE_DP_DATA``, or ``data/`` of the source checkout.

    Raises
    ------
    FileNotFoundError
        If there is no ``index.json`` in it; the message says how to rebuild the files.
    """
    chosen = os.environ.get(VARIABLE)
    folder = Path(chosen).expanduser() if chosen else Path(__file__).resolve().parents[3] / "data"
    if not (folder / "index.json").is_file():
        raise FileNotFoundError(
            f"no index.json in {folder}: set {VARIABLE} to the data/ folder of a checkout of the book, "
            "or rebuild the files there with: python data/build.py"
        )
    return folder


def read_index() -> dict[str, dict[str, Any]]:
    """Return what ``index.json`` says about each file: source, licence, rows, columns, hash, facts."""
    index: dict[str, dict[str, Any]] = json.loads((data_folder() / "index.json").read_text(encoding="utf-8"))
    return index


def _path(name: str) -> Path:
    index = read_index()
    if name not in index:
        raise ValueError(f"name must be one of {', '.join(index)}, got {name!r}")
    path = data_folder() / str(index[name]["file"])
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; rebuild it with: python data/build.py --only {name}")
    return path


def read_table(name: str) -> pd.DataFrame:
    """Return the committed table ``name``, unprepared: units and codes as at its source."""
    return pd.read_parquet(_path(name))


def read_arrays(name: str) -> dict[str, NDArray[np.uint8]]:
    """Return the committed arrays ``name``, unprepared."""
    with np.load(_path(name), allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}
