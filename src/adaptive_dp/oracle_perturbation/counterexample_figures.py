"""The figures about Gaussian noise that is too small. Each function returns a finished figure and draws no numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from adaptive_dp.plots import drawings
from adaptive_dp.plots.figure import Figure, figure
from adaptive_dp.plots.numbers import format_number
from adaptive_dp.plots.theme import Theme

EVENTS = {"P_D'": "P'(odd)", "allowed": "allowed", "P_D": "P(odd)"}
TITLES = {"cube": "cube", "rings": "64-gons"}


def draw_parity(tables: dict[str, pd.DataFrame], simulated: dict[str, pd.DataFrame], *, name: str) -> Figure:
    """P_D and P_D' of the odd event against d, with what is allowed, one panel a shape.

    Parameters
    ----------
    tables : dict
        Shape to the rows of :func:`~adaptive_dp.oracle_perturbation.flaws_discrete.parity_table` for one epsilon.
    simulated : dict
        Shape to :func:`~adaptive_dp.oracle_perturbation.flaws_discrete.simulated_table`, drawn as points.
    name : str
    """

    def draw(axes: Any, theme: Theme) -> None:
        for place, (shape, frame) in zip(np.ravel(axes), tables.items(), strict=True):
            drawings.curves(place, theme, frame, "d", EVENTS)
            points = simulated[shape]
            for index, column in ((0, "P_D'"), (2, "P_D")):
                drawings.scatter(place, theme, points["d"], points[column], index=index, size=28, alpha=1.0)
            drawings.log_axis(place, "x")
            place.set_ylim(0, 1.03)
            place.set_title(TITLES[shape])
            place.set_xlabel("dimension d")
            place.set_ylabel("probability")
        drawings.legend(list(np.ravel(axes)))

    text = []
    for shape, frame in tables.items():
        broken = frame[frame["refuted"]]
        last = frame.iloc[-1]
        start = (
            f"above the allowed line from d = {int(broken['d'].iloc[0])} on" if len(broken) else "below it"
        )
        high, low = (format_number(float(last[column]), 2) for column in ("P_D'", "P_D"))
        text.append(
            f"{TITLES[shape]}: P' rises to {high} and P falls to {low} at d = {int(last['d'])}; P' is {start}"
        )
    return figure(
        draw,
        name=name,
        size=(6.4, 3.7),
        panels=(1, len(tables)),
        sharey=True,
        alt="Probability of an odd answer on two neighbours against the dimension, log scale, exact curves and "
        f"simulated points. {'. '.join(text)}.",
    )


def draw_map(table: pd.DataFrame, *, name: str, own: int = 23) -> Figure:
    """Dimensions in which Algorithm 1's scale is proved, open and refuted, against epsilon.

    Parameters
    ----------
    table : DataFrame
        As :func:`~adaptive_dp.oracle_perturbation.flaws_discrete_tail.dimension_table` returns it, with rings.
    name : str
    own : int
        A dimension to be marked: the paper's.
    """
    top = float(table["rings from"].max()) * 1.15

    def draw(axes: Axes, theme: Theme) -> None:
        bands = (
            (np.ones(len(table)), table["proved up to"], "proved", 0, ""),
            (table["proved up to"], table["refuted from"], "open", 1, "///"),
            (table["refuted from"], np.full(len(table), top), "refuted", 2, "..."),
        )
        for low, high, label, index, hatch in bands:
            axes.fill_between(
                table["epsilon"],
                low,
                high,
                facecolor=theme.colour(index),
                edgecolor=theme.background,
                hatch=hatch,
                alpha=0.45,
                linewidth=0,
                label=label,
            )
        axes.plot(table["epsilon"], table["rings from"], label="parity alone", **theme.curve(3))
        drawings.log_axis(axes, "x")
        drawings.log_axis(axes, "y")
        axes.set_ylim(1, top)
        drawings.baseline(axes, theme, own, f"d = {own}")
        axes.set_xlabel("epsilon")
        axes.set_ylabel("dimension d")
        drawings.legend(axes)

    rows = "; ".join(
        f"at epsilon {format_number(float(row['epsilon']), 2)} proved up to {int(row['proved up to'])}, refuted from "
        f"{int(row['refuted from'])}"
        for _, row in table.iloc[[0, len(table) // 2, -1]].iterrows()
    )
    return figure(
        draw,
        name=name,
        size=(5.6, 3.9),
        alt=f"Map of the printed Gaussian scale over epsilon and dimension, log scales, three bands: {rows}. The line "
        "of the parity losses without rare noise lies far above the lower edge of the refuted band.",
    )
