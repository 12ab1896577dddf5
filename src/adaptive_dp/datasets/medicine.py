"""Medical data: chronic kidney disease, and the IWPC warfarin doses."""

from __future__ import annotations

import numpy as np
import pandas as pd

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.datasets.files import read_table
from adaptive_dp.datasets.preparation import log_range, scale_rows, to_range
from adaptive_dp.privacy import NORMS, Domain
from adaptive_dp.validation import FloatArray, check_choice

# Wide clinical ranges; values outside are clipped.
KIDNEY_RANGES = {
    "age": (0.0, 100.0),
    "bp": (40.0, 200.0),
    "sg": (1.005, 1.025),
    "al": (0.0, 5.0),
    "su": (0.0, 5.0),
    "sod": (100.0, 170.0),
    "hemo": (0.0, 20.0),
    "pcv": (0.0, 60.0),
    "wbcc": (0.0, 30_000.0),
    "rbcc": (0.0, 10.0),
}
# Blood values with long upper tails enter as logarithms, up to these tops.
KIDNEY_TOPS = {"bgr": 500.0, "bu": 400.0, "sc": 80.0, "pot": 50.0}
# The level that counts as 1.
KIDNEY_FINDINGS = {
    "rbc": "abnormal",
    "pc": "abnormal",
    "pcc": "present",
    "ba": "present",
    "htn": "yes",
    "dm": "yes",
    "cad": "yes",
    "appet": "poor",
    "pe": "yes",
    "ane": "yes",
}
IWPC_RANGES = {"age_decade": (1.0, 9.0), "height_cm": (120.0, 210.0), "weight_kg": (30.0, 240.0)}
IWPC_GENOTYPES = ("*1/*2", "*1/*3", "*2/*2", "*2/*3", "*3/*3")
DOSE_TOP = 150.0
TARGETS = ("sqrt", "dose")
# Largest number of nonzero entries: three numeric columns, one each of VKORC1, CYP2C9 and race, two drugs.
_IWPC_ACTIVE = 8


def load_kidney(*, norm: str = "l2", scaling: str = "unit") -> Dataset:
    """Chronic kidney disease, 400 x 24: +1 for a patient who has it (250 of 400).

    Fourteen numeric columns are mapped to [0, 1] by wide clinical ranges (four long-tailed blood values
    through their logarithm), ten findings are 0 or 1. Only 158 records are complete; the 1,012 missing
    cells are filled with the column's median or most frequent level. **That step looks at all records**
    and is not covered by any guarantee of this book; everything else uses public constants. The filled
    data are linearly separable, so that weights diverge without a ridge.

    Parameters
    ----------
    norm : {"l1", "l2", "linf"}
        Norm of the declared domain; the bound is 1.
    scaling : {"unit", "bound"}
        See :func:`adaptive_dp.datasets.preparation.scale_rows`.

    Returns
    -------
    Dataset
        Labels in {-1, +1}.
    """
    check_choice("norm", norm, NORMS)
    table = _filled(read_table("kidney"))
    columns: dict[str, FloatArray] = {
        name: to_range(name, table[name], low, high) for name, (low, high) in KIDNEY_RANGES.items()
    }
    columns |= {name: log_range(name, table[name], top) for name, top in KIDNEY_TOPS.items()}
    columns |= {name: _flag(table[name] == level) for name, level in KIDNEY_FINDINGS.items()}
    return Dataset(
        scale_rows(np.column_stack(list(columns.values())), norm, scaling, len(columns)),
        np.where(table["class"] == "ckd", 1.0, -1.0),
        Domain(norm=norm, feature_bound=1.0, labels="sign"),
        tuple(columns),
        title="Chronic kidney disease",
    )


def _flag(values: pd.Series) -> FloatArray:
    """Truth values, or flags that are 0 and 1 already, as 0.0 and 1.0."""
    return np.asarray(values, dtype=np.float64)


def _filled(table: pd.DataFrame) -> pd.DataFrame:
    """Missing cells by median or most frequent level of the column."""
    numeric = [*KIDNEY_RANGES, *KIDNEY_TOPS]
    fill = table[numeric].median().to_dict()
    fill |= {name: table[name].mode().iloc[0] for name in KIDNEY_FINDINGS}
    return table.fillna(fill)


def load_iwpc(
    *, stable: bool = False, target: str = "sqrt", norm: str = "l2", scaling: str = "unit"
) -> Dataset:
    r"""Warfarin doses of the 2009 release, 3,508 x 14 (3,434 with ``stable=True``).

    The 14 columns are those of the published pharmacogenetic dosing formula (IWPC, 2009): age in
    decades, height, weight; VKORC1 A/G and A/A; CYP2C9 \*1/\*2, \*1/\*3, \*2/\*2, \*2/\*3,
    \*3/\*3; Asian, Black; an enzyme inducer; amiodarone. Kept are patients of that release with known
    dose, age, height, weight, race and genotypes; an unrecorded drug counts as not taken. wu2015 does
    not pin its "about 3,000" rows.

    Parameters
    ----------
    stable : bool
        Only patients who reached a stable dose.
    target : {"sqrt", "dose"}
        Label: the square root of the weekly dose, as in the published formula, or the dose. Doses above
        150 mg a week are clipped (three patients). Labels are mapped to [-1, 1].
    norm : {"l1", "l2", "linf"}
        Norm of the declared domain; the bound is 1.
    scaling : {"unit", "bound"}
        See :func:`adaptive_dp.datasets.preparation.scale_rows`. Age, height and weight are mapped to
        [0, 1] by public ranges first. Public constants only, no privacy cost.

    Returns
    -------
    Dataset
        ``restore_labels`` gives mg a week, or its square root.
    """
    if not isinstance(stable, bool):
        raise TypeError(f"stable must be True or False, got {stable!r}")
    check_choice("target", target, TARGETS)
    check_choice("norm", norm, NORMS)
    table = _dosed(read_table("iwpc"), stable)
    columns = _dosing_columns(table)
    dose = np.clip(table["dose_mg_week"].to_numpy(dtype=np.float64), 0.0, DOSE_TOP)
    top = DOSE_TOP if target == "dose" else float(np.sqrt(DOSE_TOP))
    return Dataset(
        scale_rows(np.column_stack(list(columns.values())), norm, scaling, _IWPC_ACTIVE),
        to_range("dose", dose if target == "dose" else np.sqrt(dose), 0.0, top, -1.0),
        Domain(norm=norm, feature_bound=1.0, labels="real", label_bound=1.0),
        tuple(columns),
        title="IWPC warfarin dosing",
        label_scale=top / 2,
        label_shift=top / 2,
    )


def _dosed(table: pd.DataFrame, stable: bool) -> pd.DataFrame:
    """Patients of the 2009 release with everything known that the formula needs."""
    needed = ["dose_mg_week", "age_decade", "height_cm", "weight_kg", "vkorc1"]
    kept = table[table["release_2009"] & (table["race"] != "Unknown")].dropna(subset=needed)
    kept = kept[kept["cyp2c9"].isin(["*1/*1", *IWPC_GENOTYPES])]
    return kept[kept["stable_dose"] == 1] if stable else kept


def _dosing_columns(table: pd.DataFrame) -> dict[str, FloatArray]:
    columns = {name: to_range(name, table[name], low, high) for name, (low, high) in IWPC_RANGES.items()}
    columns |= {f"VKORC1 {pair}": _flag(table["vkorc1"] == pair) for pair in ("A/G", "A/A")}
    columns |= {f"CYP2C9 {pair}": _flag(table["cyp2c9"] == pair) for pair in IWPC_GENOTYPES}
    columns |= {race: _flag(table["race"] == race) for race in ("Asian", "Black")}
    inducers = table[["carbamazepine", "phenytoin", "rifampin"]].fillna(0.0).max(axis=1)
    columns["enzyme_inducer"] = _flag(inducers)
    columns["amiodarone"] = _flag(table["amiodarone"].fillna(0.0))
    return columns
