"""Data sets that are not committed: loaded if the reader has the file, or is online.

Both repeat the preparation of ligett2017 exactly, **including its one step that is not private**: rows are
divided by the largest norm in the data. The paper says so itself. Use these loaders to compare with its
figures, not as a model of how to prepare data.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.datasets.preparation import divide_by_largest
from adaptive_dp.datasets.simulated import BUZZ_NAMES
from adaptive_dp.privacy import NORMS, Domain
from adaptive_dp.validation import FloatArray, check_choice, check_count

KDD_TEXT = ("protocol_type", "service", "flag")
KDD_LOGARITHMS = ("duration", "src_bytes", "dst_bytes")
KDD_COLUMNS = (
    "duration",
    *KDD_TEXT,
    "src_bytes",
    "dst_bytes",
    "land",
    "wrong_fragment",
    "urgent",
    "hot",
    "num_failed_logins",
    "logged_in",
    "num_compromised",
    "root_shell",
    "su_attempted",
    "num_root",
    "num_file_creations",
    "num_shells",
    "num_access_files",
    "num_outbound_cmds",
    "is_host_login",
    "is_guest_login",
    "count",
    "srv_count",
    "serror_rate",
    "srv_serror_rate",
    "rerror_rate",
    "srv_rerror_rate",
    "same_srv_rate",
    "diff_srv_rate",
    "srv_diff_host_rate",
    *(
        f"dst_host_{rest}"
        for rest in (
            "count",
            "srv_count",
            "same_srv_rate",
            "diff_srv_rate",
            "same_src_port_rate",
            "srv_diff_host_rate",
            "serror_rate",
            "srv_serror_rate",
            "rerror_rate",
            "srv_rerror_rate",
        )
    ),
    "label",
)
KDD_HELP = (
    "pass path= with the file kddcup.data_10_percent.gz of the UCI Machine Learning Repository "
    "(doi:10.24432/C51C7N), or connect to the internet once so that scikit-learn can fetch it; "
    "load_census_income() is the stand-in that needs neither"
)
BUZZ_HELP = (
    "it is the file of the UCI Machine Learning Repository's 'Buzz in social media' "
    "(doi:10.24432/C56G6V), folder regression/Twitter; simulate_buzz() is the stand-in that needs no file"
)


def load_kddcup99(
    path: str | Path | None = None, rows: int = 100_000, seed: int = 20_261, *, norm: str = "l1"
) -> Dataset:
    """KDD Cup 99 (ten per cent), prepared as in ligett2017: 38 columns, +1 for an attack.

    The three text columns are dropped; duration and bytes sent and received enter as log(1 + value); all
    rows are divided by the largest row norm of the whole file, which is **not private**; then ``rows``
    records are drawn without replacement.

    Parameters
    ----------
    path : path, optional
        A local copy: comma separated text without a header (also ``.gz``), or parquet with the
        documented column names and ``label``. Without it scikit-learn's ``fetch_kddcup99`` is asked.
    rows : int
        Size of the subset, at most 494,021.
    seed : int
        Which subset.
    norm : {"l1", "l2", "linf"}
        Norm of the declared domain; the bound is 1.

    Returns
    -------
    Dataset
        ``rows`` x 38, labels in {-1, +1}.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    OSError
        If there is no path and the file can neither be found nor fetched; the message says what to do.
    ValueError
        If the file has other columns.
    """
    check_choice("norm", norm, NORMS)
    check_count("rows", rows)
    check_count("seed", seed, minimum=0)
    table = _fetch_kdd() if path is None else _read_kdd(Path(path))
    label = table["label"].astype(str)
    numeric = table.drop(columns=[*KDD_TEXT, "label"]).astype(np.float64)
    for name in KDD_LOGARITHMS:
        numeric[name] = np.log1p(numeric[name])
    label = label.astype(str).str.strip().str.rstrip(".")
    if not 0 < int((label == "normal").sum()) < len(label):
        raise ValueError(
            "path must hold labels 'normal.' beside names of attacks, as the KDD Cup 99 file does"
        )
    features = divide_by_largest(numeric.to_numpy(), norm)
    return _subset(
        features,
        np.where(label == "normal", -1.0, 1.0),
        Domain(norm=norm, feature_bound=1.0, labels="sign"),
        tuple(numeric.columns),
        "KDD Cup 99 (ten per cent)",
        rows,
        seed,
    )


def load_twitter_buzz(
    path: str | Path, rows: int = 100_000, seed: int = 20_261, *, norm: str = "l1"
) -> Dataset:
    """UCI's Twitter data, prepared as in ligett2017: 77 columns, real labels in [0, 1].

    The target becomes log(1 + target); rows are divided by the largest row norm and labels by the
    largest label of the whole file, which is **not private**; then ``rows`` records are drawn without
    replacement.

    Parameters
    ----------
    path : path
        The file ``Twitter.data``: comma separated, 77 features and the target, no header.
    rows : int
        Size of the subset.
    seed : int
        Which subset.
    norm : {"l1", "l2", "linf"}
        Norm of the declared domain; the bound is 1.

    Returns
    -------
    Dataset
        ``rows`` x 77; ``restore_labels`` gives log(1 + target).

    Raises
    ------
    FileNotFoundError
        If there is no such file; the message says where it comes from.
    ValueError
        If the file does not have 78 columns of nonnegative targets.
    """
    check_choice("norm", norm, NORMS)
    check_count("rows", rows)
    check_count("seed", seed, minimum=0)
    values = pd.read_csv(_existing(Path(path), BUZZ_HELP), header=None).to_numpy()
    if values.shape[1] != len(BUZZ_NAMES) + 1:
        raise ValueError(f"path must hold {len(BUZZ_NAMES) + 1} columns, got {values.shape[1]}: {path}")
    if values.dtype.kind not in "iuf" or (values < 0).any():
        raise ValueError(f"path must hold nonnegative numbers and no header, as Twitter.data does: {path}")
    target = np.log1p(values[:, -1].astype(np.float64))
    largest = float(target.max())
    if not largest > 0:
        raise ValueError(f"path must hold a target above zero, got {largest!r} as the largest: {path}")
    return _subset(
        divide_by_largest(values[:, :-1].astype(np.float64), norm),
        target / largest,
        Domain(norm=norm, feature_bound=1.0, labels="real", label_bound=1.0),
        BUZZ_NAMES,
        "Twitter buzz (UCI)",
        rows,
        seed,
        label_scale=largest,
    )


def _subset(
    features: FloatArray,
    labels: FloatArray,
    domain: Domain,
    names: tuple[str, ...],
    title: str,
    rows: int,
    seed: int,
    label_scale: float = 1.0,
) -> Dataset:
    if rows > len(labels):
        raise ValueError(f"rows must be at most {len(labels)}, got {rows}")
    chosen = np.random.default_rng(seed).choice(len(labels), size=rows, replace=False)
    return Dataset(features[chosen], labels[chosen], domain, names, title, label_scale=label_scale)


def _existing(path: Path, help_text: str) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"no file at {path}: {help_text}")
    return path


def _read_kdd(path: Path) -> pd.DataFrame:
    _existing(path, KDD_HELP)
    if path.suffix == ".parquet":
        table = pd.read_parquet(path)
    else:
        table = pd.read_csv(path, header=None)
        if table.shape[1] == len(KDD_COLUMNS):
            table.columns = pd.Index(KDD_COLUMNS)
    if list(table.columns) != list(KDD_COLUMNS):
        raise ValueError(
            f"path must hold the {len(KDD_COLUMNS)} documented columns of KDD Cup 99, "
            f"got {table.shape[1]} columns: {path}"
        )
    return table


def _fetch_kdd() -> pd.DataFrame:
    """Ask scikit-learn, which keeps a copy after the first time."""
    from sklearn.datasets import fetch_kddcup99  # type: ignore[import-untyped]

    try:
        with warnings.catch_warnings():
            # The error below says what to do; the announcement of a second try says less.
            warnings.filterwarnings("ignore", message="Retry downloading")
            fetched = fetch_kddcup99(percent10=True, shuffle=False, n_retries=1)
    except OSError as error:
        raise OSError(f"KDD Cup 99 is not on this machine and could not be fetched: {KDD_HELP}") from error
    table = pd.DataFrame(fetched.data, columns=pd.Index(KDD_COLUMNS[:-1]))
    return table.assign(label=[name.decode() for name in fetched.target])
