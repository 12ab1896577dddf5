"""Figures 1 to 4 of the paper, from a summary of the experiments: one panel a calibration.

The descriptions for readers who do not see a figure are computed from the numbers, so that they stay true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from adaptive_dp.accuracy_first.above_threshold import CALIBRATIONS
from adaptive_dp.accuracy_first.experiment import at_alpha, quantity
from adaptive_dp.plots import drawings
from adaptive_dp.plots.figure import Figure, figure
from adaptive_dp.plots.numbers import format_number
from adaptive_dp.plots.theme import Theme

Panel = Callable[[Axes, Theme, pd.DataFrame, str], None]

LABELS = {
    "noise reduction": "noise reduction",
    "doubling": "doubling",
    "theory": "theory, expected",
    "theory, likely": "theory, likely",
    "brownian": "Brownian",
}
SEARCHES = ("noise reduction", "doubling")
PAPER_METHODS = ("noise reduction", "doubling", "theory", "theory, likely")
ALPHA_LABEL = "excess risk requested, alpha"


def _panels(
    frames: Mapping[str, pd.DataFrame], panel: Panel, *, name: str, alt: str, y_label: str, log: bool
) -> Figure:
    def draw(axes: Any, theme: Theme) -> None:
        flat: list[Axes] = list(np.ravel(axes))
        for place, (title, frame) in zip(flat, frames.items(), strict=True):
            panel(place, theme, frame, title)
            if log:
                drawings.log_axis(place, "y")
            place.set_title(title)
            place.set_xlabel(ALPHA_LABEL)
            if place is flat[0]:  # the panels share the axis
                place.set_ylabel(y_label)
        drawings.legend(flat)

    return figure(draw, name=name, alt=alt, size=(6.4, 4.2), panels=(1, len(frames)), sharey=True)


def _lines(axes: Axes, theme: Theme, frame: pd.DataFrame) -> None:
    drawings.tradeoff(axes, theme, frame, x="alpha", by="method", labels=LABELS)


def _by_calibration(summary: pd.DataFrame, name: str, methods: Sequence[str]) -> dict[str, pd.DataFrame]:
    return {
        f"{kind} constants": quantity(summary, name, calibration=kind, methods=methods)
        for kind in CALIBRATIONS
    }


def _null_line(axes: Axes, theme: Theme, null: float, frame: pd.DataFrame) -> None:
    """From which alpha on the hypothesis zero would do: an upright line, or a remark where it lies outside."""
    if null < frame["alpha"].max():
        drawings.baseline(axes, theme, null, "theta = 0", direction="x")
    else:
        words = f"theta = 0: {format_number(null, 2)} →"
        axes.annotate(
            words, (1, 1), xycoords="axes fraction", ha="right", va="top", fontsize=11, color=theme.muted
        )


def _middle(summary: pd.DataFrame) -> float:
    alphas = np.sort(summary["alpha"].unique())
    return float(alphas[len(alphas) // 2])


def _ranking(summary: pd.DataFrame, name: str, methods: Sequence[str]) -> str:
    """Say in words, for each calibration, which method is where at the middle alpha."""
    alpha = _middle(summary)
    sentences = []
    for kind in CALIBRATIONS:
        values = {m: float(at_alpha(summary, calibration=kind, method=m, alpha=alpha)[name]) for m in methods}
        ordered = sorted(values, key=lambda method: -values[method])
        listed = ", ".join(f"{LABELS[method]} {format_number(values[method], 2)}" for method in ordered)
        sentences.append(f"{kind} constants: {listed}")
    return f"At alpha = {alpha:g}, from highest to lowest, with " + "; with ".join(sentences) + "."


def draw_losses(
    summary: pd.DataFrame, *, data: str, name: str, null: float, methods: Sequence[str] = PAPER_METHODS
) -> Figure:
    """Figure 1: ex-post privacy loss against alpha, with the excess risk of theta = 0 as an upright line."""

    def panel(axes: Axes, theme: Theme, frame: pd.DataFrame, title: str) -> None:
        _lines(axes, theme, frame)
        _null_line(axes, theme, null, frame)

    frames = _by_calibration(summary, "epsilon", methods)
    alt = f"Privacy loss against excess risk requested, {data}, log scale. {_ranking(summary, 'epsilon', methods)}"
    return _panels(frames, panel, name=name, alt=alt, y_label="privacy loss, epsilon", log=True)


def draw_delivered(
    summary: pd.DataFrame, *, data: str, name: str, null: float, methods: Sequence[str] = SEARCHES
) -> Figure:
    """Figure 2: excess risk delivered against excess risk requested, with the lines alpha and alpha/2."""

    def panel(axes: Axes, theme: Theme, frame: pd.DataFrame, title: str) -> None:
        _lines(axes, theme, frame)
        alphas = np.sort(frame["alpha"].unique())
        axes.plot(alphas, alphas, color=theme.muted, linestyle="dashed", label="requested")
        axes.plot(alphas, alphas / 2, color=theme.muted, linestyle="dotted", label="half of it")
        _null_line(axes, theme, null, frame)

    frames = _by_calibration(summary, "excess_risk", methods)
    alt = f"Excess risk delivered against that requested, {data}. {_ranking(summary, 'excess_risk', methods)}"
    return _panels(frames, panel, name=name, alt=alt, y_label="excess risk delivered", log=False)


def draw_parts(
    summary: pd.DataFrame, *, data: str, name: str, null: float, method: str = "noise reduction"
) -> Figure:
    """Figure 3: testing and generating apart, for one method."""

    def panel(axes: Axes, theme: Theme, frame: pd.DataFrame, title: str) -> None:
        parts = {"test": "testing", "generate": "generating"}
        drawings.breakdown(axes, theme, frame, x="alpha", parts=parts, kind="lines")
        _null_line(axes, theme, null, frame)

    frames = {
        f"{kind} constants": summary[(summary["calibration"] == kind) & (summary["method"] == method)]
        for kind in CALIBRATIONS
    }
    alpha = _middle(summary)
    rows = [at_alpha(summary, calibration=kind, method=method, alpha=alpha) for kind in CALIBRATIONS]
    shares = [format_number(float(row["test"] / row["generate"]), 2) for row in rows]
    alt = (
        f"Loss of testing and of generating for {method} on {data}, log scale: at alpha = {alpha:g} testing costs "
        f"{shares[0]} times as much as generating with printed constants and {shares[1]} times with sharp ones."
    )
    return _panels(frames, panel, name=name, alt=alt, y_label="privacy loss, epsilon", log=True)


def draw_norms(
    summary: pd.DataFrame,
    *,
    data: str,
    name: str,
    null: float,
    maxima: Mapping[str, float],
    methods: Sequence[str] = SEARCHES,
) -> Figure:
    """Figure 4: norm of the final hypotheses against the theoretical maximum of each calibration."""

    def panel(axes: Axes, theme: Theme, frame: pd.DataFrame, title: str) -> None:
        _lines(axes, theme, frame)
        drawings.baseline(axes, theme, maxima[title.split()[0]], "theoretical maximum")
        axes.set_ylim(0, 1.2 * max(maxima.values()))
        _null_line(axes, theme, null, frame)

    frames = _by_calibration(summary, "norm", methods)
    bounds = " and ".join(f"{format_number(maxima[kind], 3)} ({kind})" for kind in CALIBRATIONS)
    alt = f"Norm of the hypotheses, {data}; theoretical maxima {bounds}. {_ranking(summary, 'norm', methods)}"
    return _panels(frames, panel, name=name, alt=alt, y_label="norm of the hypothesis", log=False)


def draw_brownian(
    summaries: Mapping[str, pd.DataFrame], *, name: str, nulls: Mapping[str, float], value: str = "epsilon"
) -> Figure:
    """Laplace against Brownian noise, sharp constants, one panel a problem: a loss (or a part of it) by alpha."""
    methods = ("noise reduction", "brownian")

    def panel(axes: Axes, theme: Theme, frame: pd.DataFrame, title: str) -> None:
        _lines(axes, theme, frame)
        _null_line(axes, theme, nulls[title], frame)

    frames = {
        title: quantity(summary, value, calibration="sharp", methods=methods)
        for title, summary in summaries.items()
    }
    told = []
    for title, summary in summaries.items():
        alpha = _middle(summary)
        laplace, brownian = (
            float(at_alpha(summary, calibration="sharp", method=method, alpha=alpha)[value])
            for method in methods
        )
        told.append(f"{title}: Laplace {format_number(laplace, 2)}, Brownian {format_number(brownian, 2)}")
    what = "generating the accepted hypothesis" if value == "generate" else "the whole search"
    alt = f"Privacy loss of {what} against alpha, log scale. In the middle, {'; '.join(told)}."
    return _panels(
        frames,
        panel,
        name=name,
        alt=alt,
        y_label=f"loss of {what.split()[0]}" if value == "generate" else "privacy loss, epsilon",
        log=True,
    )
