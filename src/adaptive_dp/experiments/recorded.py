"""Recorded results: a small CSV file, and a JSON file that explains it."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from adaptive_dp.experiments.versions import today, versions

_REQUIRED = ("parameters", "seed", "wall_seconds")


def save_results(frame: pd.DataFrame, path: str | Path, metadata: Mapping[str, Any]) -> None:
    """Record results: a CSV file with 6 significant digits, and beside it a JSON file that explains it.

    Parameters
    ----------
    frame : pandas.DataFrame
        What to keep; the index is not written.
    path : path
        Name of the CSV file, ending in ``.csv``; the other ends in ``.json``.
    metadata : mapping
        At least ``parameters``, ``seed`` and ``wall_seconds``; versions, date, columns and number of
        rows are added.

    Raises
    ------
    ValueError
        If the frame is empty, the ending is another, or a required entry is missing.
    """
    target = _csv_path(path)
    if frame.empty:
        raise ValueError("frame must not be empty")
    missing = [name for name in _REQUIRED if name not in metadata]
    if missing:
        raise ValueError(f"metadata must hold {', '.join(_REQUIRED)}; missing: {', '.join(missing)}")
    added = {
        "date": today(),
        "versions": versions(),
        "rows": len(frame),
        "columns": {str(name): str(kind) for name, kind in frame.dtypes.items()},
    }
    table = frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    added["sha256"] = hashlib.sha256(table.encode("utf-8")).hexdigest()
    text = json.dumps({**metadata, **added}, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    target.parent.mkdir(parents=True, exist_ok=True)
    _replace(target, table)
    _replace(target.with_suffix(".json"), text)


def load_results(path: str | Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """What `save_results` recorded: the frame, with the kinds of its columns, and the metadata.

    Raises
    ------
    FileNotFoundError
        If one of the two files is missing.
    ValueError
        If the two do not belong together.
    """
    source = _csv_path(path)
    metadata: dict[str, Any] = json.loads(source.with_suffix(".json").read_text(encoding="utf-8"))
    columns: dict[str, str] = metadata["columns"]
    # An empty field is the only missing one: a method may be called "NA" or "None".
    table = source.read_text(encoding="utf-8")
    texts = {name: "str" for name, kind in columns.items() if kind in ("str", "object")}
    frame = pd.read_csv(io.StringIO(table), keep_default_na=False, na_values=[""], dtype=texts)
    if list(frame.columns) != list(columns) or len(frame) != metadata["rows"]:
        raise ValueError(f"path: {source.name} does not have the rows and columns that its metadata name")
    if hashlib.sha256(table.encode("utf-8")).hexdigest() != metadata["sha256"]:
        raise ValueError(
            f"path: {source.name} is not the table that its metadata describe: it was edited or cut"
        )
    return frame.astype(columns), metadata


def _csv_path(path: str | Path) -> Path:
    if Path(path).suffix != ".csv":
        raise ValueError(f"path must end in .csv, got {str(path)!r}")
    return Path(path)


def _replace(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old or the new one, never half of it."""
    draft = path.with_name(path.name + ".part")
    draft.write_text(text, encoding="utf-8", newline="\n")
    draft.replace(path)
