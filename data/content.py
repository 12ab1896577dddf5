"""Write and read the committed files, and hash what is in them.

The bytes of a parquet file change with the version of its writer, so the index records a hash of the
content instead: of the table as CSV text, or of the arrays with their names, types and shapes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from recipes import Content
from sources import sha256


def ending(content: Content) -> str:
    """Ending of the file that holds ``content``."""
    return ".parquet" if isinstance(content, pd.DataFrame) else ".npz"


def content_hash(content: Content) -> str:
    """Sha256 of the content, whatever library wrote the file."""
    if isinstance(content, pd.DataFrame):
        return sha256(content.to_csv(index=False, lineterminator="\n").encode())
    parts = []
    for name, array in sorted(content.items()):
        parts.append(f"{name} {array.dtype.str} {array.shape}\n".encode())
        parts.append(np.ascontiguousarray(array).tobytes())
    return sha256(b"".join(parts))


def shape(content: Content) -> tuple[int, int]:
    """Rows and columns; for arrays the rows of all parts together and the columns of the features."""
    if isinstance(content, pd.DataFrame):
        return content.shape
    features = [array for array in content.values() if array.ndim == 2]
    return sum(len(array) for array in features), features[0].shape[1]


def write(content: Content, path: Path) -> None:
    """Write a table as parquet (zstd) or arrays as a compressed npz."""
    if isinstance(content, pd.DataFrame):
        content.to_parquet(path, index=False, compression="zstd", compression_level=19)
    else:
        np.savez_compressed(path, **cast(Any, content))


def read(path: Path) -> Content:
    """Read what :func:`write` wrote."""
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
