"""Handwritten digits for the chapters on aggregated teachers."""

from __future__ import annotations

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.datasets.files import read_arrays
from adaptive_dp.datasets.preparation import scale_rows
from adaptive_dp.privacy import NORMS, Domain
from adaptive_dp.validation import check_choice

DIGIT_PARTS = ("train", "test")
PIXELS = 196


def load_mnist14(part: str = "train", *, norm: str = "l2", scaling: str = "unit") -> Dataset:
    """MNIST digits at 14 x 14 pixels: 60,000 or 10,000 rows of 196 grey levels, ten classes.

    Parameters
    ----------
    part : {"train", "test"}
    norm : {"l1", "l2", "linf"}
        Norm of the declared domain; the bound is 1.
    scaling : {"unit", "bound"}
        Grey levels are divided by 255, then rows are scaled as in
        :func:`adaptive_dp.datasets.preparation.scale_rows`; public constants, no privacy cost.

    Returns
    -------
    Dataset
        Labels 0, ..., 9.
    """
    check_choice("part", part, DIGIT_PARTS)
    check_choice("norm", norm, NORMS)
    arrays = read_arrays("mnist14")
    return Dataset(
        scale_rows(arrays[f"x_{part}"] / 255.0, norm, scaling, PIXELS),
        arrays[f"y_{part}"],
        Domain(norm=norm, feature_bound=1.0, labels="class", label_bound=10.0),
        tuple(f"pixel {row},{column}" for row in range(14) for column in range(14)),
        title=f"MNIST at 14 x 14 ({part})",
    )
