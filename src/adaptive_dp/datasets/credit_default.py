"""Default of credit card clients, with the 21 features of redberg2023."""

from __future__ import annotations

import numpy as np

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.datasets.files import read_table
from adaptive_dp.datasets.preparation import log_range, scale_rows, signed_log_range, to_range
from adaptive_dp.privacy import NORMS, Domain
from adaptive_dp.validation import FloatArray, check_choice

LIMIT_TOP = 1_000_000.0
AMOUNT_TOP = 1_000_000.0
AGES = (18.0, 100.0)
# Months of delay are coded from -2 (nothing owed) over 0 to 8 (eight months or more).
DELAY_TOP = 8.0


def load_credit_default(*, norm: str = "l2", scaling: str = "unit") -> Dataset:
    """Credit card clients, 30,000 x 21: +1 if the client defaults on the next payment.

    redberg2023 gives d = 21 without names; these are the 23 features of the source less the two
    unordered codes, education and marriage. Bills and payments span six orders of magnitude, so they
    enter as sign(v) log(1 + |v|); amounts beyond a million New Taiwan dollars are clipped (a handful).

    Parameters
    ----------
    norm : {"l1", "l2", "linf"}
        Norm of the declared domain; the bound is 1.
    scaling : {"unit", "bound"}
        See :func:`adaptive_dp.datasets.preparation.scale_rows`; public constants, no privacy cost.

    Returns
    -------
    Dataset
        Labels in {-1, +1}.
    """
    check_choice("norm", norm, NORMS)
    table = read_table("credit_default")
    columns: dict[str, FloatArray] = {
        "LIMIT_BAL": log_range("LIMIT_BAL", table["LIMIT_BAL"], LIMIT_TOP),
        "SEX": to_range("SEX", table["SEX"], 1.0, 2.0),
        "AGE": to_range("AGE", table["AGE"], *AGES),
    }
    for month in (0, 2, 3, 4, 5, 6):
        name = f"PAY_{month}"
        columns[name] = to_range(name, table[name], -DELAY_TOP, DELAY_TOP, -1.0)
    for kind in ("BILL", "PAY"):
        for month in range(1, 7):
            name = f"{kind}_AMT{month}"
            columns[name] = signed_log_range(name, table[name], AMOUNT_TOP)
    return Dataset(
        scale_rows(np.column_stack(list(columns.values())), norm, scaling, len(columns)),
        np.where(table["default"], 1.0, -1.0),
        Domain(norm=norm, feature_bound=1.0, labels="sign"),
        tuple(columns),
        title="Default of credit card clients",
    )
