"""The figures of OPSamp's section. Each function returns a finished figure; none of them draws random numbers.

The descriptions for readers who do not see a figure are computed from the numbers, so that they stay true.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from adaptive_dp.plots import drawings
from adaptive_dp.plots.figure import Figure, figure
from adaptive_dp.plots.numbers import ends_in_words, format_number
from adaptive_dp.plots.theme import Theme

BOUNDS = {"printed": "Lemma 8 as printed", "bound": "corrected"}
SMALLEST = 1e-12


def draw_stability(units: pd.DataFrame, dimensions: pd.DataFrame, *, name: str) -> Figure:
    """Distance of two answers, attained and bounded, against D on a line and against d.

    From ``units_frame`` and ``dimension_frame``.
    """
    panels = (
        (units, "diameter", {**BOUNDS, "exact": "attained"}, "diameter D, d = 1", "E|w − w'|"),
        (
            dimensions,
            "dimension",
            {**BOUNDS, "attained": "attained"},
            "dimension d",
            "in units of 2 G eta D",
        ),
    )

    def draw(axes: Any, theme: Theme) -> None:
        for place, (frame, x, series, horizontal, vertical) in zip(np.ravel(axes), panels, strict=True):
            ordered = frame.sort_values(x)
            for index, (column, label) in enumerate(series.items()):
                place.plot(ordered[x], ordered[column], label=label, **theme.curve(index))
            drawings.log_axis(place, "x")
            drawings.log_axis(place, "y")
            place.set_xlabel(horizontal)
            place.set_ylabel(vertical)
        drawings.legend(list(np.ravel(axes)))

    broken = units[units["printed"] < units["exact"]]["diameter"]
    crossing = (
        f"the printed bound is below it for D up to {format_number(float(broken.max()), 2)}"
        if len(broken)
        else "the printed bound is above it everywhere"
    )
    last = dimensions.iloc[-1]
    values = ", ".join(
        f"{label} {format_number(float(last[column]), 2)}" for column, label in panels[1][2].items()
    )
    return figure(
        draw,
        name=name,
        size=(6.4, 3.4),
        panels=(1, 2),
        alt=f"Left: the attained distance falls in proportion to D and equals the corrected bound; {crossing}. "
        f"Right, at d = {int(last['dimension'])}: {values}.",
    )


def draw_failures(averages: pd.DataFrame, radii: pd.DataFrame, *, name: str) -> Figure:
    """Two printed probabilities against d and what they are allowed to be (``lemma9_frame``, ``radius_frame``)."""
    allowed = float(averages["allowed"].iloc[0])

    def draw(axes: Any, theme: Theme) -> None:
        left, right = np.ravel(axes)
        left.plot(
            averages["dimension"],
            averages["printed"].clip(lower=SMALLEST),
            label="as printed",
            **theme.line(0),
        )
        left.plot(
            averages["dimension"],
            averages["corrected"].clip(lower=SMALLEST),
            label="corrected",
            **theme.line(1),
        )
        drawings.baseline(left, theme, allowed, "allowed")
        drawings.log_axis(left, "y")
        left.set(title="Lemma 9: average", xlabel="dimension d", ylabel="probability of failure")
        right.plot(radii["dimension"], radii["probability"], label="as printed", **theme.line(0))
        drawings.baseline(right, theme, 0.025, "allowed")
        right.set(title="Theorem 7: Laplace noise", xlabel="dimension d", ylabel="probability of failure")
        drawings.legend([left, right])

    first = ends_in_words(averages, {"printed": "as printed", "corrected": "corrected"})
    second = ends_in_words(radii, {"probability": "as printed"})
    return figure(
        draw,
        name=name,
        size=(6.4, 3.4),
        panels=(1, 2),
        alt=f"Probability of failure from small to large dimensions. Lemma 9, {format_number(allowed, 2)} allowed: "
        f"{first}. Radius of Theorem 7, a fortieth allowed: {second}.",
    )


def draw_usability(curves: pd.DataFrame, *, name: str) -> Figure:
    """Bounds of the excess against n, one curve a dimension, printed and corrected parameters (``bound_curves``)."""
    series = {"printed": "as printed", "bound": "corrected"}

    def draw(axes: Any, theme: Theme) -> None:
        for place, (column, title) in zip(np.ravel(axes), series.items(), strict=True):
            for index, (d, part) in enumerate(curves.groupby("dimension", sort=False)):
                place.plot(part["records"], part[column], label=f"d = {d}", **theme.curve(index))
            drawings.log_axis(place, "x")
            drawings.log_axis(place, "y")
            place.axhline(1.0, color=theme.muted, linewidth=1.2)
            place.set(title=title, xlabel="records n")
        np.ravel(axes)[0].set_ylabel("bound of the excess loss")
        drawings.legend(list(np.ravel(axes)))

    text = "; ".join(
        f"d = {d}: " + ends_in_words(part, series) for d, part in curves.groupby("dimension", sort=False)
    )
    return figure(
        draw,
        name=name,
        size=(6.4, 3.6),
        panels=(1, 2),
        sharey=True,
        alt=f"Bounds of the excess loss of OPSamp fall about like one over the root of n. {text}.",
    )


def draw_answers(runs: Mapping[str, Mapping[str, Any]], *, name: str) -> Figure:
    """Where the answers of the oracle lie in the square, their average and the release, one panel a run."""

    def draw(axes: Any, theme: Theme) -> None:
        for place, (title, run) in zip(np.ravel(axes), runs.items(), strict=True):
            points, counts = np.unique(np.round(run["points"], 3), axis=0, return_counts=True)
            place.scatter(
                points[:, 0],
                points[:, 1],
                s=900 * counts / counts.sum() + 2,
                color=theme.colour(0),
                alpha=0.6,
                linewidths=0,
                label="answers",
            )
            for index, (label, point) in enumerate(
                (("average", run["centre"]), ("release", run["value"])), start=1
            ):
                place.scatter(
                    point[:1],
                    point[1:],
                    s=60,
                    color=theme.colour(index),
                    marker=str(theme.line(index)["marker"]),
                    label=label,
                    linewidths=0,
                    zorder=3,
                )
            place.set(title=title, xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), xlabel="first coordinate")
            place.set_ylabel("second coordinate")
        drawings.legend(list(np.ravel(axes)))

    def words(run: Mapping[str, Any]) -> str:
        x, y = (format_number(float(value), 2) for value in run["centre"])
        corners = float(np.mean(np.abs(run["points"]).min(axis=1) > 0.99))
        return f"the average is at ({x}, {y}); {format_number(100 * corners, 2)} per cent of the answers are corners"

    text = ". ".join(f"{title}: {words(run)}" for title, run in runs.items())
    return figure(
        draw,
        name=name,
        size=(6.4, 3.9),
        panels=(1, len(runs)),
        sharey=True,
        alt=f"Answers of the oracle in the square, area by number. {text}.",
    )


def draw_growth(growth: pd.DataFrame, *, name: str) -> Figure:
    """Excess of the hinge loss against n: measured, bound, and of doing nothing (``growth_frame``)."""
    series = {"bound": "bound", "quantile": "95% quantile", "released": "mean"}

    def draw(axes: Axes, theme: Theme) -> None:
        for index, (column, label) in enumerate(series.items()):
            axes.plot(growth["records"], growth[column], label=label, **theme.line(index))
        axes.plot(growth["records"], growth["nothing"], label="w = 0", color=theme.muted, linestyle="dashed")
        drawings.log_axis(axes, "x")
        drawings.log_axis(axes, "y")
        axes.set(xlabel="records n", ylabel="excess mean loss")
        drawings.legend(axes)

    text = ends_in_words(growth, {**series, "nothing": "of w = 0"})
    sizes = (
        f"{format_number(int(growth['records'].iloc[0]))} to {format_number(int(growth['records'].iloc[-1]))}"
    )
    return figure(draw, name=name, alt=f"Excess of the hinge loss, {sizes} records: {text}.")
