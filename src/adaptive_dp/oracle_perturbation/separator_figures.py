"""Figures of the sections on RSPM and on the comparison. None of them draws random numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from adaptive_dp.plots import drawings
from adaptive_dp.plots.figure import Figure, figure
from adaptive_dp.plots.numbers import format_number
from adaptive_dp.plots.theme import Theme

PROOFS = {
    "length": "proved, length of the shift",
    "separators": "proved, one by one",
    "parity": "attained",
}
NAMES = {
    "exponential": "exponential mechanism",
    "values": "noise on values",
    "rspm box": "RSPM, box noise",
    "rspm": "RSPM, Laplace noise",
    "opdisc": "OPDisc, norm noise",
}
SMALLEST_DELTA = 1e-14


def draw_printed_noise(frame: pd.DataFrame, *, claimed: float, name: str) -> Figure:
    """Delta of Algorithm 3's noise against the number of separators.

    Parameters
    ----------
    frame : DataFrame
        From :func:`~adaptive_dp.oracle_perturbation.separator_tables.printed_noise_frame`.
    claimed : float
        The delta that the algorithm was given.
    name : str
        Of the figure.
    """

    def draw(axes: Axes, theme: Theme) -> None:
        for index, (column, label) in enumerate(PROOFS.items()):
            shown = frame[frame[column] >= SMALLEST_DELTA]
            axes.plot(shown["m"], shown[column], label=label, **theme.curve(index))
        drawings.log_axis(axes, "x")
        drawings.log_axis(axes, "y")
        drawings.baseline(axes, theme, claimed, "claimed")
        axes.set_xlabel("number of separators m")
        axes.set_ylabel("delta")
        drawings.legend(axes)

    def crossing(column: str) -> str:
        above = frame.loc[frame[column] > claimed, "m"]
        return f"above it from m = {int(above.iloc[0])} on" if len(above) else "never above it"

    text = "; ".join(f"{label}: {crossing(column)}" for column, label in PROOFS.items())
    return figure(
        draw,
        name=name,
        size=(5.6, 4.0),
        alt=f"Delta of Algorithm 3's noise against the number of separators, both on log scales, with the claimed "
        f"{format_number(claimed, 2)}. {text}.",
    )


def draw_accuracy(frame: pd.DataFrame, *, name: str) -> Figure:
    """Mean accuracy against epsilon by mechanism, with two standard errors.

    Parameters
    ----------
    frame : DataFrame
        From :func:`~adaptive_dp.oracle_perturbation.comparison.accuracy_table`.
    name : str
        Of the figure.
    """
    best = float(frame.loc[frame["mechanism"] == "no noise", "mean"].iloc[0])
    shown = frame[frame["mechanism"].isin(NAMES)].copy()
    order = {mechanism: place for place, mechanism in enumerate(NAMES)}
    shown = shown.sort_values("mechanism", key=lambda names: names.map(order), kind="stable")

    def draw(axes: Axes, theme: Theme) -> None:
        drawings.tradeoff(axes, theme, shown, x="epsilon", by="mechanism", labels=NAMES)
        drawings.log_axis(axes, "x")
        drawings.baseline(axes, theme, best, "no noise")
        axes.set_xlabel("epsilon")
        axes.set_ylabel("mean training accuracy")
        drawings.legend(axes)

    levels = np.sort(shown["epsilon"].unique())
    middle = float(levels[len(levels) // 2])
    at = shown[shown["epsilon"] == middle].set_index("mechanism")["mean"]
    text = ", ".join(f"{label} {format_number(float(at[key]), 3)}" for key, label in NAMES.items())
    return figure(
        draw,
        name=name,
        size=(5.6, 4.4),
        alt=f"Mean training accuracy against epsilon on a log scale; without noise {format_number(best, 3)}. "
        f"At epsilon {format_number(middle, 2)}: {text}.",
    )
