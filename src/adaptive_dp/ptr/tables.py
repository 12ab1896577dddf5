"""Sizes of the chapter's live parts, and recorded results in the shape that its figures want."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from adaptive_dp.experiments import load_results, profile_settings
from adaptive_dp.ptr.pate_experiment import pate_settings
from adaptive_dp.ptr.regression_experiment import regression_settings

# The methods of Figure 3.1 that are drawn, with one version of OPS-PTR, and their names.
REGRESSIONS = {
    "ridge, not private": "not private",
    "OutPert": "OutPert",
    "OPS-Balanced": "OPS-Balanced",
    "AdaOPS, curve": "AdaOPS",
    "AdaSSP": "AdaSSP",
    "OPS-PTR, curve": "OPS-PTR",
}
ANALYSES = {
    "gaussian": "data-independent",
    "data_dependent": "data-dependent, not private",
    "thesis": "tested, as in the thesis",
    "smoother": "tested, smoother",
}


def chapter_settings(profile: str) -> dict[str, Any]:
    """Sizes of the live parts at a profile, with those of the two experiments under ``pate`` and ``regression``."""
    settings = profile_settings(
        profile,
        quick={"pairs": 60, "rotations": 500, "glm_trials": 1, "pca_trials": 2, "random_votes": 10},
        book={"pairs": 600, "rotations": 5_000, "glm_trials": 3, "pca_trials": 10, "random_votes": 200},
        paper={"pairs": 6_000, "rotations": 20_000, "glm_trials": 20, "pca_trials": 50, "random_votes": 400},
    )
    return {**settings, "pate": pate_settings(profile), "regression": regression_settings(profile)}


def recorded(path: Path) -> pd.DataFrame:
    """Return the table of a recorded result."""
    return load_results(path)[0]


def regression_panels(errors: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """One frame a data set with the methods that are drawn, under their names."""
    chosen = errors[errors["method"].isin(list(REGRESSIONS))]
    renamed = chosen.assign(method=chosen["method"].map(REGRESSIONS))
    return {str(name): part for name, part in renamed.groupby("data", sort=False)}


def analysis_panels(privacy: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Figure 3.2 in long form, one frame a kind of consensus: ``sigma``, ``method``, ``mean``, ``low``, ``high``.

    The tested analyses are cut at the public maximum of the loss; the interval is that of the trials.
    """
    panels = {}
    for kind, frame in privacy.groupby("consensus", sort=False):
        parts = []
        once = frame.drop_duplicates("sigma")
        for column in ("gaussian", "data_dependent"):
            values = once[column]
            parts.append(
                pd.DataFrame(
                    {
                        "sigma": once["sigma"],
                        "method": ANALYSES[column],
                        "mean": values,
                        "low": values,
                        "high": values,
                    }
                )
            )
        for name in ("thesis", "smoother"):
            chosen = frame[frame["test"] == name]
            parts.append(
                pd.DataFrame(
                    {
                        "sigma": chosen["sigma"],
                        "method": ANALYSES[name],
                        "mean": chosen["ptr"],
                        "low": chosen["ptr_low"],
                        "high": chosen["ptr_high"],
                    }
                )
            )
        panels[f"{kind} consensus"] = pd.concat(parts, ignore_index=True)
    return panels


def student_panels(student: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Accuracy against the noise, one frame for labels and one for the student; a line for each consensus."""
    return {
        str(name): part.rename(columns={"consensus": "method"})
        for name, part in student.groupby("quantity", sort=False)
    }
