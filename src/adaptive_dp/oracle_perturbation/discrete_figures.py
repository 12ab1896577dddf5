"""The figures about OPDisc. Each function returns a finished figure; none of them draws random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from adaptive_dp.plots import drawings
from adaptive_dp.plots.figure import Figure, figure
from adaptive_dp.plots.numbers import ends_in_words, format_number
from adaptive_dp.plots.theme import Theme

SIZES = {"E norm": "norm, pure", "E proved": "Gaussian, proved", "E printed": "Gaussian, printed"}
RATIOS = {
    "bound": "promise",
    "far": "two points, far",
    "square": "square, random",
    "tie": "two points, tie",
}
MARGINS = {"two points": "two points", "square": "square"}


def draw_noise_sizes(table: pd.DataFrame, *, name: str) -> Figure:
    """Mean length of the noise over the shift against d, from :func:`discrete_tables.noise_table`."""

    def draw(axes: Axes, theme: Theme) -> None:
        drawings.curves(axes, theme, table, "d", SIZES)
        drawings.log_axis(axes, "x")
        drawings.log_axis(axes, "y")
        axes.set_xlabel("dimension d")
        axes.set_ylabel("mean length over the shift")
        drawings.legend(axes)

    first, last = int(table["d"].iloc[0]), int(table["d"].iloc[-1])
    return figure(
        draw,
        name=name,
        alt="Mean length of OPDisc's noise in units of the shift against the dimension, log scales, from "
        f"d = {first} to d = {last}: {ends_in_words(table, SIZES)}.",
    )


def draw_ratios(ratios: pd.DataFrame, margins: pd.DataFrame, *, name: str) -> Figure:
    """Exact probability ratios against the promise: over epsilon, and over the distance of the data from a tie.

    ``ratios`` and ``margins`` as :func:`discrete_tables.ratio_table` and :func:`discrete_tables.margin_table` return
    them.
    """

    def draw(axes: Any, theme: Theme) -> None:
        left, right = np.ravel(axes)
        drawings.curves(left, theme, ratios, "epsilon", RATIOS)
        drawings.log_axis(left, "y")
        left.set_xlabel("epsilon")
        left.set_ylabel("largest probability ratio")
        for column, label in MARGINS.items():
            # The colours of the left panel: the same spaces.
            index = list(RATIOS).index({"two points": "far", "square": "square"}[column])
            right.plot(margins["margin"], margins[column], label=f"{label}, margin", **theme.line(index))
        drawings.log_axis(right, "x")
        right.set_ylim(0.7, 1.03)
        drawings.baseline(right, theme, 1.0, "promise")
        right.set_xlabel("margin in records")
        right.set_ylabel("log ratio over epsilon")
        drawings.legend([left, right])

    last = ratios.iloc[-1]
    at = ", ".join(f"{text} {format_number(float(last[column]), 3)}" for column, text in RATIOS.items())
    return figure(
        draw,
        name=name,
        size=(6.4, 3.8),
        panels=(1, 2),
        alt="Left: largest exact ratio of output probabilities on neighbouring data against epsilon, log scale; at "
        f"epsilon {format_number(float(last['epsilon']))}: {at}. Right: log ratio over epsilon against the margin: "
        f"{ends_in_words(margins, MARGINS)}.",
    )
