"""The figures of chapter 2. Each function returns a finished figure; none of them draws random numbers.

The descriptions for readers who do not see a figure are computed from the numbers, so that they stay true.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator
from numpy.typing import ArrayLike
from scipy import stats

from adaptive_dp import goe
from adaptive_dp.plots import drawings
from adaptive_dp.plots.figure import Figure, figure
from adaptive_dp.plots.hover import Hover, hover_frames
from adaptive_dp.plots.numbers import format_number
from adaptive_dp.plots.theme import Theme
from adaptive_dp.validation import FloatArray, as_finite_array

Panels = np.ndarray[Any, np.dtype[np.object_]]
TERMS = {"determinant": "determinant", "gradient": "gradient", "inner": "inner product"}
# Area of a marker, in square points, of a person who loses nothing and of the one who loses most.
SMALLEST_MARKER, LARGEST_MARKER = 12.0, 170.0


# ---------------------------------------------------------------- people in the plane


def _people(axes: Axes, theme: Theme, frame: pd.DataFrame, largest: float) -> None:
    """Two classes in the plane; the area of a marker grows with the loss."""
    for index, (label, part) in enumerate(frame.groupby("label")):
        share = np.clip(part["loss"] / largest, 0.0, 1.0)
        axes.scatter(
            part["x1"],
            part["x2"],
            s=SMALLEST_MARKER + (LARGEST_MARKER - SMALLEST_MARKER) * share,
            color=theme.colour(index),
            marker="os"[index],
            alpha=0.7,
            linewidths=0,
            label=f"label {label:+.0f}",
        )


def _separator(axes: Axes, theme: Theme, theta: FloatArray) -> None:
    """The line where the model hesitates, and the direction that it calls +1."""
    across = np.array([-theta[1], theta[0]]) / np.linalg.norm(theta)
    ends = np.array([-1.1, 1.1])[:, np.newaxis] * across
    axes.plot(ends[:, 0], ends[:, 1], color=theme.text, linewidth=1.2, linestyle="dashed")
    arrow = 0.35 * theta / np.linalg.norm(theta)
    axes.annotate(
        "", (float(arrow[0]), float(arrow[1])), (0, 0), arrowprops={"arrowstyle": "->", "color": theme.text}
    )


def _plane(axes: Axes) -> None:
    axes.set_xlim(-1.15, 1.15)
    axes.set_ylim(-1.15, 1.15)
    axes.set_xlabel("feature 1")
    axes.set_ylabel("feature 2")


def rotation_frames(frame: pd.DataFrame, theta: ArrayLike, *, name: str = "pi-rotation") -> Hover:
    """Slide the published parameter around its exact value, and point at a person to see the terms of her loss.

    Source: redberg2023, Figure 2.3.1.

    Parameters
    ----------
    frame : DataFrame
        Columns ``angle`` (radians), ``person``, ``x1``, ``x2``, ``label``, ``determinant``, ``gradient``,
        ``inner``, ``loss``; one row a person and angle.
    theta : array_like, shape (2,)
        The parameter at angle 0.
    """
    start = as_finite_array("theta", theta, ndim=1)
    angles = np.sort(frame["angle"].unique())
    largest = float(frame["loss"].max())

    def turned(angle: float) -> FloatArray:
        c, s = math.cos(angle), math.sin(angle)
        return np.array([c * start[0] - s * start[1], s * start[0] + c * start[1]])

    def draw(axes: Axes, theme: Theme, angle: float) -> None:
        _people(axes, theme, frame[frame["angle"] == angle], largest)
        _separator(axes, theme, turned(angle))
        _plane(axes)
        drawings.legend(axes)

    def describe(angle: float) -> str:
        part = frame[frame["angle"] == angle]
        return (
            f"The model turned by {math.degrees(angle):.0f} degrees: median loss "
            f"{format_number(float(part['loss'].median()), 2)}, largest {format_number(float(part['loss'].max()), 2)}."
        )

    return hover_frames(
        draw,
        lambda angle: frame[frame["angle"] == angle].set_index("person"),
        [float(angle) for angle in angles],
        columns={**TERMS, "loss": "loss"},
        x="x1",
        y="x2",
        point="person",
        label="angle",
        alt=describe,
        name=name,
        size=(5.0, 4.6),
        text=lambda angle: f"{math.degrees(angle):.0f} degrees",
    )


def draw_terms_by_margin(frame: pd.DataFrame) -> Figure:
    """The three terms of the loss against the margin of the person, one panel an angle.

    ``frame`` is that of :func:`rotation_frames` with a further column ``margin``, y theta'x at angle 0 over
    ||theta||.
    """
    angles = np.sort(frame["angle"].unique())

    def draw(axes: Panels, theme: Theme) -> None:
        flat: list[Axes] = list(np.ravel(axes))
        for place, angle in zip(flat, angles, strict=True):
            part = frame[frame["angle"] == angle]
            for index, (column, label) in enumerate(TERMS.items()):
                drawings.scatter(
                    place, theme, part["margin"], part[column].abs() + 1e-12, index=index, label=label
                )
            drawings.log_axis(place, "y")
            place.set_title(f"{math.degrees(angle):.0f} degrees")
            place.set_xlabel("distance")
        flat[0].set_ylabel("absolute value of the term")
        drawings.legend(flat)

    leading = {
        f"{math.degrees(angle):.0f} degrees": max(
            TERMS, key=lambda term: float(frame.loc[frame["angle"] == angle, term].abs().median())
        )
        for angle in angles
    }
    return figure(
        draw,
        name="pi-terms",
        size=(6.4, 3.6),
        panels=(1, len(angles)),
        sharey=True,
        alt="Absolute values of the three terms of the loss against the distance to the boundary, log scale. The term "
        "with the largest median: " + ", ".join(f"{TERMS[t]} at {a}" for a, t in leading.items()) + ".",
    )


# ---------------------------------------------------------------- bounds


def draw_determinant_bounds() -> Figure:
    """Bounds of the determinant term against f'' ||x||^2 / lam: printed and sharp, which is attained."""
    ratio = np.linspace(0.0, 2.0, 401)[1:]
    printed = np.full_like(ratio, np.nan)
    printed[ratio < 0.995] = -np.log1p(-ratio[ratio < 0.995])

    def draw(axes: Axes, theme: Theme) -> None:
        axes.plot(ratio, printed, label="printed", **theme.curve(1))
        axes.plot(ratio, np.log1p(ratio), label="sharp, attained", **theme.curve(0))
        drawings.baseline(axes, theme, 1.0, "printed bound ends", direction="x")
        axes.set_xlabel("curvature of the record over the ridge, f'' |x|² / lambda")
        axes.set_ylabel("bound of the determinant term")
        axes.set_ylim(0, 4)
        drawings.legend(axes)

    return figure(
        draw,
        name="pi-determinant",
        alt="Two bounds of the determinant term. The printed one rises to infinity as the ratio of curvature to ridge "
        "reaches 1 and does not exist beyond; the sharp one is the logarithm of 1 plus the ratio, about "
        f"{format_number(math.log(2), 2)} there, and goes on.",
    )


def draw_inner_products(fixed: ArrayLike, chosen: ArrayLike, *, dimension: int, rho: float) -> Figure:
    """Distribution of |<b, x>| / (sigma ||x||) for a person fixed before the release, and one chosen after it."""
    before, after = as_finite_array("fixed", fixed, ndim=1), as_finite_array("chosen", chosen, ndim=1)
    half = float(stats.norm.isf(rho / 2))
    ball = float(stats.chi.isf(rho, dimension))

    def draw(axes: Axes, theme: Theme) -> None:
        drawings.ecdf(
            axes,
            theme,
            before,
            stats.halfnorm.cdf,
            index=0,
            label="fixed before",
            distribution_label="half-normal law",
        )
        drawings.ecdf(axes, theme, after, index=1, label="chosen after")
        drawings.baseline(axes, theme, half, "fixed person", direction="x")
        drawings.baseline(axes, theme, ball, "everybody", direction="x")
        axes.set_xlabel("inner product in units of sigma |f'| |x|")
        axes.set_ylabel("share below")
        drawings.legend(axes)

    return figure(
        draw,
        name="pi-inner",
        alt=f"Distribution functions of the inner product in {dimension} dimensions. For a person fixed beforehand it "
        f"follows the half-normal law, whose quantile is {format_number(half, 3)}; for the person along the published "
        f"parameter, median {format_number(float(np.median(after)), 2)}, a share of only "
        f"{format_number(float((after <= half).mean()), 2)} lies below that, and everything below the chi quantile "
        f"{format_number(ball, 3)}.",
    )


# ---------------------------------------------------------------- the GOE


def draw_goe(sample: ArrayLike, *, dimension: int, rho: float) -> Figure:
    """Simulated largest eigenvalues under their exact density, with the right and the wrong tau."""
    values = as_finite_array("sample", sample, ndim=1)
    tau = goe.operator_norm_bound(rho, dimension)
    edges = np.linspace(values.min() - 0.5, max(values.max(), tau) + 0.5, 161)
    middle = 0.5 * (edges[1:] + edges[:-1])
    density = np.diff([goe.cdf(float(t), dimension) for t in edges]) / np.diff(edges)

    def draw(axes: Axes, theme: Theme) -> None:
        drawings.histogram(axes, theme, values, lambda t: np.interp(t, middle, density), bins=60)
        drawings.baseline(axes, theme, 12.0, "12, as printed", direction="x")
        drawings.baseline(axes, theme, tau, "exact tau", direction="x")
        axes.set_xlim(11.0, tau + 1.6)
        axes.set_xlabel("largest eigenvalue")
        axes.set_ylabel("density")
        drawings.legend(axes)

    return figure(
        draw,
        name="pi-goe",
        alt=f"Histogram of {values.size} simulated largest eigenvalues in {dimension} dimensions under the exact "
        f"density, which they follow: centre {format_number(float(np.median(values)), 3)}. The printed tau of 12 lies "
        f"left of almost everything, the exact one, {format_number(tau, 4)}, right of everything.",
    )


def draw_goe_quantiles(dimensions: Sequence[int], *, rho: float) -> Figure:
    """Tau against the dimension: exact, explicit, and with Chiani's normalisation by mistake."""
    d = np.asarray(dimensions)
    exact = np.array([goe.operator_norm_bound(rho, int(k)) for k in d])
    explicit = np.array([goe.explicit_bound(rho, int(k)) for k in d])

    def draw(axes: Axes, theme: Theme) -> None:
        axes.plot(d, explicit, label="explicit bound", **theme.curve(2))
        axes.plot(d, exact, label="exact", **theme.curve(0))
        axes.plot(d, exact / math.sqrt(2), label="wrong normalisation", **theme.curve(1))
        axes.set_xlabel("dimension d")
        axes.set_ylabel("bound of the operator norm, tau")
        drawings.legend(axes)

    return figure(
        draw,
        name="pi-goe-quantiles",
        alt=f"Bound of the operator norm against the dimension from {d.min()} to {d.max()}: the explicit bound lies "
        f"above the exact one by a factor of at most {format_number(float((explicit / exact).max()), 3)}; the value "
        "in the other normalisation lies below it by the square root of two.",
    )


# ---------------------------------------------------------------- reports


def _distribution(frame: pd.DataFrame, column: str) -> tuple[FloatArray, FloatArray]:
    """Points of a distribution function: from one row a person, or from quantiles at a column ``level``."""
    if "level" in frame.columns:
        ordered = frame.sort_values("level")
        values, shares = ordered[column].to_numpy(), ordered["level"].to_numpy()
    else:
        values = np.sort(frame[column].to_numpy())
        keep = np.unique(np.linspace(0, values.size - 1, min(values.size, 300)).round().astype(int))
        values, shares = values[keep], (keep + 1) / values.size
    # A loss of exactly 0 has no place on a log axis, and its ratio is infinite.
    fine = (values > 0) & np.isfinite(values)
    return values[fine], shares[fine]


def _few_decades(axes: Axes) -> None:
    """A logarithmic axis of a narrow panel: at most six decades, and ticks that have room beside one another."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(max(low, high * 1e-6), high)
    drawings.log_axis(axes, "x")
    if high / max(low, high * 1e-6) > 1e3:
        axes.xaxis.set_major_locator(LogLocator(numticks=5))


def median_of(frame: pd.DataFrame, column: str) -> float:
    """Median over people, from one row a person or from quantiles at a column ``level``."""
    values, shares = _distribution(frame, column)
    return float(values[np.searchsorted(shares, 0.5)])


def draw_distributions(
    panels: Mapping[str, pd.DataFrame],
    series: Mapping[str, str],
    *,
    name: str,
    what: str,
    x_label: str,
    line: tuple[float, str] | None = None,
    log: bool = True,
    columns: int = 2,
) -> Figure:
    """Distribution functions over people, one panel a frame, one curve a column.

    Parameters
    ----------
    panels : mapping of str to DataFrame
        Title of the panel, and a frame with one row a person, or with quantiles at a column ``level``.
    series : mapping of str to str
        Columns to show and their names for the reader.
    what : str
        What the figure shows, for the description.
    line : (float, str), optional
        An upright reference line and its name.
    columns : int
        Panels a row.
    """
    across = min(columns, len(panels))
    rows = math.ceil(len(panels) / across)

    def draw(axes: Any, theme: Theme) -> None:
        flat: list[Axes] = list(np.ravel(axes))
        for place, (title, frame) in zip(flat, panels.items(), strict=True):
            for index, (column, label) in enumerate(series.items()):
                values, shares = _distribution(frame, column)
                place.plot(values, shares, label=label, **theme.curve(index))
            if line is not None:
                drawings.baseline(place, theme, line[0], line[1], direction="x")
            if log:
                _few_decades(place)
            if len(panels) > 1:
                place.set_title(title)
            place.set_xlabel(x_label)
            place.set_ylabel("share of people")
        drawings.legend(flat)

    def medians(frame: pd.DataFrame) -> str:
        return ", ".join(
            f"{label} {format_number(float(frame[c].median()), 2)}" for c, label in series.items()
        )

    text = "; ".join(f"{title}: {medians(frame)}" for title, frame in panels.items())
    return figure(
        draw,
        name=name,
        size=(6.4, 3.4 * rows) if across > 1 else (5.4, 3.4 * rows),
        panels=(rows, across) if len(panels) > 1 else (1, 1),
        sharey=len(panels) > 1,
        alt=f"{what}, as distribution functions over people{', log scale' if log else ''}. Medians: {text}.",
    )


def draw_report(frame: pd.DataFrame, *, name: str = "pi-report") -> Figure:
    """What a report says to m people, from :meth:`PrivacyReport.to_frame`: terms, bound and overhead."""
    series = {
        "determinant": "determinant",
        "gradient": "gradient",
        "inner": "inner product",
        "bound": "bound of the loss",
        "overhead": "overhead",
    }
    shown = {column: label for column, label in series.items() if (frame[column] > 0).any()}
    return draw_distributions(
        {"report": frame},
        shown,
        name=name,
        what=f"What a report tells {len(frame)} people",
        x_label="bound of the term, or loss",
    )


def draw_utility(frame: pd.DataFrame, stars: Mapping[float, float], *, name: str = "pi-utility") -> Figure:
    """Training error against the inflation of lambda, one line an epsilon, with Algorithm 2's demand as a star.

    Parameters
    ----------
    frame : DataFrame
        Columns ``epsilon``, ``inflation``, ``mean``, ``low``, ``high``.
    stars : mapping of float to float
        For each epsilon the inflation that Algorithm 2 demands.
    """
    labelled = frame.assign(series=[f"epsilon {value:g}" for value in frame["epsilon"]])

    def draw(axes: Axes, theme: Theme) -> None:
        drawings.tradeoff(axes, theme, labelled, x="inflation", by="series")
        for index, (epsilon, place) in enumerate(stars.items()):
            line = frame[frame["epsilon"] == epsilon].sort_values("inflation")
            height = np.interp(math.log(place), np.log(line["inflation"]), line["mean"])
            axes.plot([place], [height], marker="*", markersize=15, linestyle="", color=theme.colour(index))
        drawings.log_axis(axes, "x")
        axes.set_xlabel("lambda, in units of what the theorem asks for")
        axes.set_ylabel("0-1 error")
        drawings.legend(axes)

    ends = "; ".join(
        f"epsilon {epsilon:g} from {format_number(float(part['mean'].iloc[0]), 2)} to "
        f"{format_number(float(part['mean'].iloc[-1]), 2)}"
        for epsilon, part in frame.sort_values("inflation").groupby("epsilon")
    )
    return figure(
        draw,
        name=name,
        alt="Error of the private classifier against the inflation of lambda, log scale, from the smallest inflation "
        f"to the largest: {ends}.",
    )


def draw_worst_case(
    frame: pd.DataFrame, *, x: str, x_label: str, name: str, log_x: bool, series: Mapping[str, str]
) -> Figure:
    """Worst case over people of the loss and of its bounds, against the size of the data.

    Parameters
    ----------
    frame : DataFrame
        Column ``x``, and for each of ``series`` its mean and, with ``_low`` and ``_high`` appended, its interval.
    series : mapping of str to str
        Columns to show and their names for the reader.
    """
    chosen = pd.concat(
        [
            pd.DataFrame(
                {
                    x: frame[x],
                    "series": label,
                    "mean": frame[column],
                    "low": frame[f"{column}_low"],
                    "high": frame[f"{column}_high"],
                }
            )
            for column, label in series.items()
        ],
        ignore_index=True,
    )

    def draw(axes: Axes, theme: Theme) -> None:
        drawings.tradeoff(axes, theme, chosen, x=x, by="series")
        if log_x:
            drawings.log_axis(axes, "x")
        drawings.log_axis(axes, "y")
        axes.set_xlabel(x_label)
        axes.set_ylabel("largest over people")
        drawings.legend(axes)

    ends = "; ".join(
        f"{key} from {format_number(float(part['mean'].iloc[0]), 2)} to "
        f"{format_number(float(part['mean'].iloc[-1]), 2)}"
        for key, part in chosen.sort_values(x).groupby("series", sort=False)
    )
    return figure(
        draw,
        name=name,
        alt=f"Largest value over people against {x_label}, log scale, from left to right: {ends}.",
    )
