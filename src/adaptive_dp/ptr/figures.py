"""The figures of chapter 3. Each function returns a finished figure; none of them draws random numbers.

The descriptions for readers who do not see a figure are computed from the numbers, so that they stay true.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from adaptive_dp.plots import drawings
from adaptive_dp.plots.figure import Figure, figure
from adaptive_dp.plots.numbers import ends_in_words, format_number
from adaptive_dp.plots.theme import Theme


def draw_naive(frame: pd.DataFrame) -> Figure:
    """Exact delta of noise in proportion to the local sensitivity, from :func:`naive.naive_noise`."""
    series = {"delta": "at epsilon", "delta_ten": "at ten times epsilon"}
    ordered = frame.sort_values("sensitivity")

    def draw(axes: Axes, theme: Theme) -> None:
        drawings.curves(axes, theme, ordered, "sensitivity", series)
        drawings.log_axis(axes, "x")
        axes.set_xlabel("local sensitivity of the kinder data, its neighbour's is 1")
        axes.set_ylabel("exact delta")
        drawings.legend(axes)

    return figure(
        draw,
        name="ptr-naive",
        alt="Exact delta of noise in proportion to the local sensitivity against the sensitivity of the kinder data "
        f"set, log scale, from the smallest to 1: {ends_in_words(ordered, series)}.",
    )


def draw_loss_against_gap(frame: pd.DataFrame, *, delta: float) -> Figure:
    """Figure B.1 (a): losses of the noisy winner against the gap, from :func:`voting_experiment.loss_against_gap`."""
    series = {
        "laplace": "Laplace mechanism",
        "pure": "pure, data-dependent",
        "approximate": "at delta, data-dependent",
        "largest_above": "worst above the gap",
    }

    def draw(axes: Axes, theme: Theme) -> None:
        drawings.curves(axes, theme, frame, "gap", series)
        axes.set_xlabel("gap between the two counts")
        axes.set_ylabel("privacy loss, epsilon")
        drawings.legend(axes)

    return figure(
        draw,
        name="ptr-gap",
        alt=f"Privacy loss of the noisy winner against the gap, delta {format_number(delta, 1)} where it is not pure. "
        f"From the smallest gap to the largest: {ends_in_words(frame, series)}. "
        "The pure loss rises, that at delta falls to 0.",
    )


def draw_voting_tradeoff(frame: pd.DataFrame) -> Figure:
    """Figure B.1 (b): privacy at equal error, from :func:`voting_experiment.privacy_against_error`."""
    series = {"laplace": "Laplace mechanism", "generalized": "generalized, mean", "classic": "classic"}
    ordered = frame.sort_values("error")

    def draw(axes: Axes, theme: Theme) -> None:
        drawings.curves(axes, theme, ordered, "log10_error", series)
        axes.set_xlabel("log10 of the error rate")
        axes.set_ylabel("privacy cost, epsilon")
        drawings.legend(axes)

    return figure(
        draw,
        name="ptr-voting",
        alt="Privacy cost at equal error rate, from the smallest error to the largest: "
        f"{ends_in_words(ordered, series)}.",
    )


def draw_methods(
    frame: pd.DataFrame,
    *,
    name: str,
    y_label: str,
    what: str,
    labels: Mapping[str, str] | None = None,
    by: str = "method",
    log_y: bool = False,
) -> Figure:
    """One line a method against epsilon with its interval: columns ``epsilon``, ``by``, ``mean``, ``low``, ``high``."""

    def draw(axes: Axes, theme: Theme) -> None:
        drawings.tradeoff(axes, theme, frame, x="epsilon", by=by, labels=labels)
        drawings.log_axis(axes, "x")
        if log_y:
            drawings.log_axis(axes, "y")
        axes.set_xlabel("epsilon")
        axes.set_ylabel(y_label)
        drawings.legend(axes)

    names = labels or {}
    text = "; ".join(
        f"{names.get(str(key), str(key))} from {format_number(float(part['mean'].iloc[0]), 2)} to "
        f"{format_number(float(part['mean'].iloc[-1]), 2)}"
        for key, part in frame.sort_values("epsilon").groupby(by, sort=False)
    )
    return figure(
        draw, name=name, alt=f"{what} against epsilon, log scale, from the smallest to the largest: {text}."
    )


def draw_panels(
    panels: Mapping[str, pd.DataFrame],
    *,
    name: str,
    y_label: str,
    what: str,
    labels: Mapping[str, str] | None = None,
    x: str = "epsilon",
    x_label: str = "epsilon",
    log_x: bool = True,
    log_y: bool = False,
    columns: int = 2,
) -> Figure:
    """The same with a panel for each data set; ``panels`` maps titles to frames."""
    across = min(columns, len(panels))
    rows = math.ceil(len(panels) / across)

    def draw(axes: Any, theme: Theme) -> None:
        flat: list[Axes] = list(np.ravel(axes))
        for place, (title, frame) in zip(flat, panels.items(), strict=False):
            drawings.tradeoff(place, theme, frame, x=x, by="method", labels=labels)
            if log_x:
                drawings.log_axis(place, "x")
            if log_y:
                drawings.log_axis(place, "y")
            place.set_title(title)
            place.set_xlabel(x_label)
            place.set_ylabel(y_label)
        for spare in flat[len(panels) :]:
            spare.set_axis_off()
        drawings.legend(flat[: len(panels)])

    names = labels or {}
    text = ". ".join(
        f"{title}: "
        + ", ".join(
            f"{names.get(str(key), str(key))} {format_number(float(part.sort_values(x)['mean'].iloc[-1]), 2)}"
            for key, part in frame.groupby("method", sort=False)
        )
        for title, frame in panels.items()
    )
    return figure(
        draw,
        name=name,
        size=(6.4, 3.5 * rows),
        panels=(rows, across),
        alt=f"{what} against {x_label}, one panel a data set. Values at the right end, {text}.",
    )
