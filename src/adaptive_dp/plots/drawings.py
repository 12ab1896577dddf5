"""Reusable drawings: each adds to an ``Axes`` and belongs inside the ``draw`` of a figure.

All take the axes and the theme first. None of them draws random numbers or touches global state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from adaptive_dp.plots.numbers import superscript
from adaptive_dp.plots.theme import Theme
from adaptive_dp.validation import FloatArray, as_finite_array, check_choice, check_probability, check_real

_MANY_POINTS = 2_000
_LEGEND_COLUMNS = 3


def _series(frame: pd.DataFrame, by: str | None, names: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    """The parts of a frame to be drawn apart, in order of appearance, after checking its columns."""
    for name in [*names, *([by] if by is not None else [])]:
        if name not in frame.columns:
            raise ValueError(f"frame has no column {name!r}, only {list(map(str, frame.columns))}")
    if not len(frame):
        raise ValueError("frame must have at least one row, got none")
    if by is None:
        return [("", frame)]
    return [(str(key), part) for key, part in frame.groupby(by, sort=False, observed=True)]


def curves(axes: Axes, theme: Theme, frame: pd.DataFrame, x: str, series: Mapping[str, str]) -> None:
    """One smooth curve a column of ``frame`` against ``x``; ``series`` maps columns to the names of the legend."""
    for index, (column, label) in enumerate(series.items()):
        axes.plot(frame[x], frame[column], label=label, **theme.curve(index))


def tradeoff(
    axes: Axes,
    theme: Theme,
    frame: pd.DataFrame,
    *,
    x: str,
    y: str = "mean",
    by: str | None = None,
    low: str | None = "low",
    high: str | None = "high",
    labels: Mapping[str, str] | None = None,
) -> None:
    """One line per method with the band of its interval, as `experiments.summarise` returns them.

    Parameters
    ----------
    axes, theme
        Where to draw and in which colours.
    frame : pandas.DataFrame
        Columns ``x``, ``y``, and where given ``by``, ``low``, ``high``. Lines are drawn by rising ``x``.
    x, y : str
        Columns on the axes.
    by : str, optional
        Column that tells the lines apart, at most six of them.
    low, high : str, optional
        Ends of the interval; ``None`` for both draws no band.
    labels : mapping, optional
        Names of the lines as the reader shall see them.

    Raises
    ------
    ValueError
        If a column is missing, only one end of the band is named, or there are too many lines.
    """
    if (low is None) != (high is None):
        raise ValueError(f"low and high go together, got low={low!r} and high={high!r}")
    ends = [name for name in (low, high) if name is not None]
    labels = labels or {}
    for index, (key, part) in enumerate(_series(frame, by, [x, y, *ends])):
        ordered = part.sort_values(x, kind="stable")
        axes.plot(ordered[x], ordered[y], label=labels.get(key, key), **theme.line(index))
        if ends:
            axes.fill_between(
                ordered[x],
                ordered[ends[0]],
                ordered[ends[1]],
                color=theme.colour(index),
                alpha=0.2,
                linewidth=0,
            )


def breakdown(
    axes: Axes,
    theme: Theme,
    frame: pd.DataFrame,
    *,
    x: str,
    parts: Mapping[str, str],
    kind: Literal["stacked", "lines"] = "stacked",
) -> None:
    """What a total is made of, over ``x``: stacked bars, or one line per part.

    Parameters
    ----------
    axes, theme
        Where to draw and in which colours.
    frame : pandas.DataFrame
        One row per value of ``x``.
    x : str
        Column on the horizontal axis; shown as categories for stacked bars.
    parts : mapping
        Columns to show, and their names for the reader. Stacked parts must not be negative.
    kind : {"stacked", "lines"}
        Bars on top of one another (shares of a whole) or lines beside one another.

    Raises
    ------
    ValueError
        If a column is missing, ``x`` repeats, or a stacked part is negative.
    """
    check_choice("kind", kind, ("stacked", "lines"))
    if not parts:
        raise ValueError("parts must name at least one column, got none")
    _series(frame, None, [x, *parts])
    if frame[x].duplicated().any():
        raise ValueError(
            f"frame must have one row per {x}, got {frame[x][frame[x].duplicated()].iloc[0]!r} twice"
        )
    if kind == "lines":
        ordered = frame.sort_values(x, kind="stable")
        for index, (column, label) in enumerate(parts.items()):
            axes.plot(ordered[x], ordered[column], label=label, **theme.line(index))
        return
    places = np.arange(len(frame))
    bottom = np.zeros(len(frame))
    for index, (column, label) in enumerate(parts.items()):
        heights = as_finite_array(column, frame[column].to_numpy())
        if (heights < 0).any():
            raise ValueError(f"{column} must not be negative in a stack, got {heights.min()!r}")
        axes.bar(places, heights, bottom=bottom, width=0.7, label=label, **theme.bar(index))
        bottom += heights
    axes.set_xticks(places, [str(value) for value in frame[x]])
    axes.grid(visible=False, axis="x")


def histogram(
    axes: Axes,
    theme: Theme,
    sample: ArrayLike,
    density: Callable[[FloatArray], ArrayLike] | None = None,
    *,
    bins: int | ArrayLike = 40,
    index: int = 0,
    label: str = "simulated",
    density_label: str = "exact law",
) -> None:
    """Histogram of a sample, scaled to area one, under the exact density.

    Parameters
    ----------
    axes, theme
        Where to draw and in which colours.
    sample : array_like, shape (n,)
        Simulated values.
    density : callable, optional
        Exact density, evaluated on an array.
    bins : int or array_like
        As in ``numpy.histogram``.
    index : int
        Which series colour the bars take; the law is drawn in the colour of the text.
    label, density_label : str
        Names in the legend.
    """
    values = as_finite_array("sample", sample, ndim=1)
    edges = np.histogram_bin_edges(
        values, bins=bins if isinstance(bins, int) else as_finite_array("bins", bins)
    )
    # Divided by the whole sample and not by the part inside the bins: a narrow window stays a density.
    heights = np.histogram(values, edges)[0] / (values.size * np.diff(edges))
    axes.stairs(heights, edges, fill=True, color=theme.colour(index), alpha=0.45, label=label)
    if density is not None:
        grid = np.linspace(edges[0], edges[-1], 301)
        axes.plot(grid, np.asarray(density(grid), dtype=float), color=theme.text, label=density_label)


def ecdf(
    axes: Axes,
    theme: Theme,
    sample: ArrayLike,
    distribution: Callable[[FloatArray], ArrayLike] | None = None,
    *,
    level: float = 0.95,
    index: int = 0,
    label: str = "simulated",
    distribution_label: str = "exact law",
) -> None:
    """Empirical distribution function with its simultaneous band, under the exact one.

    The band is that of Dvoretzky, Kiefer and Wolfowitz with Massart's constant (1990): with
    probability ``level`` the true distribution function lies inside it everywhere.

    Parameters
    ----------
    axes, theme
        Where to draw and in which colours.
    sample : array_like, shape (n,)
        Simulated values.
    distribution : callable, optional
        Exact distribution function, evaluated on an array.
    level : float
        Coverage of the band, in (0, 1).
    index : int
        Which series colour the sample takes; the law is drawn in the colour of the text.
    label, distribution_label : str
        Names in the legend.
    """
    values = np.sort(as_finite_array("sample", sample, ndim=1))
    half = math.sqrt(math.log(2 / (1 - check_probability("level", level))) / (2 * values.size))
    steps = np.arange(1, values.size + 1) / values.size
    keep = np.unique(np.linspace(0, values.size - 1, min(values.size, 400)).round().astype(int))
    axes.step(values[keep], steps[keep], where="post", label=label, color=theme.colour(index))
    axes.fill_between(
        values[keep],
        np.clip(steps[keep] - half, 0, 1),
        np.clip(steps[keep] + half, 0, 1),
        step="post",
        color=theme.colour(index),
        alpha=0.2,
        linewidth=0,
    )
    if distribution is not None:
        grid = np.linspace(values[0], values[-1], 301)
        exact = np.asarray(distribution(grid), dtype=float)
        axes.plot(grid, exact, color=theme.text, linestyle="dashed", label=distribution_label)


def scatter(
    axes: Axes,
    theme: Theme,
    x: ArrayLike,
    y: ArrayLike,
    *,
    index: int = 0,
    label: str = "",
    size: float = 10.0,
    alpha: float = 0.7,
) -> None:
    """A cloud of points; more than 2,000 are stored as pixels, so that the file stays small."""
    horizontal, vertical = as_finite_array("x", x, ndim=1), as_finite_array("y", y, ndim=1)
    if horizontal.size != vertical.size:
        raise ValueError(f"x and y must have the same length, got {horizontal.size} and {vertical.size}")
    axes.scatter(
        horizontal,
        vertical,
        s=size,
        alpha=alpha,
        label=label,
        color=theme.colour(index),
        marker=str(theme.line(index)["marker"]),
        linewidths=0,
        rasterized=horizontal.size > _MANY_POINTS,
    )


def baseline(
    axes: Axes, theme: Theme, value: float, label: str, *, direction: Literal["x", "y"] = "y"
) -> None:
    """A thin reference line with its name, such as the error of a predictor that ignores the data.

    Parameters
    ----------
    axes, theme
        Where to draw and in which colours.
    value : float
        Where the line stands.
    label : str
        Its name, written beside the line.
    direction : {"x", "y"}
        The axis that ``value`` is measured on: ``"y"`` gives a level line, ``"x"`` an upright one.
    """
    place = check_real("value", value)
    style: dict[str, Any] = {"color": theme.muted, "linewidth": 1.2, "linestyle": (0, (4, 3)), "zorder": 1.5}
    words: dict[str, Any] = {"color": theme.muted, "fontsize": 11.5, "textcoords": "offset points"}
    words["bbox"] = {"facecolor": theme.background, "edgecolor": "none", "alpha": 0.75, "pad": 1}
    if check_choice("direction", direction, ("x", "y")) == "y":
        axes.axhline(place, **style)
        axes.annotate(
            label,
            (1, place),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            ha="right",
            va="bottom",
            **words,
        )
    else:
        axes.axvline(place, **style)
        axes.annotate(
            label, (place, 1), xycoords=("data", "axes fraction"), xytext=(4, 0), ha="left", va="top", **words
        )


def legend(axes: Axes | Sequence[Axes] | np.ndarray[Any, Any]) -> None:
    """One legend for one or several panels, below them: it covers no data and fits a phone.

    Each name is shown once, in order of appearance.
    """
    panels: list[Axes] = [axes] if isinstance(axes, Axes) else list(np.ravel(np.asarray(axes, dtype=object)))
    entries: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if not entries:
        raise ValueError("legend needs at least one drawn line with a label")
    canvas = panels[0].get_figure(root=True)
    assert isinstance(canvas, Canvas)  # an Axes of a drawing always has one
    canvas.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center",
        ncols=_columns(list(entries), canvas.get_figwidth()),
    )


def _columns(labels: Sequence[str], width: float) -> int:
    """How many legend columns fit a figure ``width`` inches wide, at most three.

    Type of 12 points is about 0.6 points wide a letter; a handle with its spaces takes three quarters of an inch.
    """
    widest = 0.75 + max(map(len, labels)) * 12 * 0.6 / 72
    return max(1, min(len(labels), _LEGEND_COLUMNS, int(width / widest)))


def direct_labels(axes: Axes, *, gap: float = 1.25) -> None:
    """Write the name of each line at its right end, moved apart where they would collide.

    The words take the colour of all text, since letters need more contrast than lines do. Call it
    last: the limits of the axes are frozen here.

    Parameters
    ----------
    axes : Axes
        Holds at least one line with a label.
    gap : float
        Smallest distance of two names, in multiples of the type size.
    """
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    lines = [line for line in lines if str(line.get_label())]
    if not lines:
        raise ValueError("direct_labels needs at least one drawn line with a label")
    axes.set_xlim(*axes.get_xlim())
    axes.set_ylim(*axes.get_ylim())
    canvas = axes.get_figure(root=True)
    assert isinstance(canvas, Canvas)  # an Axes of a drawing always has one
    ends = [np.column_stack([line.get_xdata(orig=False), line.get_ydata(orig=False)])[-1] for line in lines]
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = to_axes.transform(np.array(ends))[:, 1]
    size = 12.0
    step = gap * size / 72 / (axes.get_position().height * canvas.get_figheight())
    for line, height in zip(lines, spread(heights, step), strict=True):
        axes.annotate(
            str(line.get_label()),
            (1, height),
            xycoords="axes fraction",
            xytext=(6, 0),
            textcoords="offset points",
            ha="left",
            va="center",
            fontsize=size,
        )


def spread(places: ArrayLike, step: float) -> FloatArray:
    """Places at least ``step`` apart, in the same order and as close to the given ones as they can be.

    Least squares under order constraints: after taking ``step`` off per rank it is an isotonic
    regression.
    """
    wanted = as_finite_array("places", places, ndim=1)
    order = np.argsort(wanted, kind="stable")
    ranks = step * np.arange(wanted.size)
    result = np.empty_like(wanted)
    result[order] = isotonic_regression(wanted[order] - ranks).x + ranks
    return result


def log_axis(axes: Axes, direction: Literal["x", "y"]) -> None:
    """Make an axis logarithmic, with ticks in plain numbers where these are short.

    Over less than two decades the ticks stand at 1, 2 and 5; over more than six, not at every decade.
    Call it after drawing, because the span decides.
    """
    check_choice("direction", direction, ("x", "y"))
    axis = axes.xaxis if direction == "x" else axes.yaxis
    (axes.set_xscale if direction == "x" else axes.set_yscale)("log")
    low, high = sorted(axis.get_view_interval())
    decades = math.log10(high / low)
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2 else (1.0,), numticks=8))
    axis.set_minor_locator(NullLocator() if decades < 2 else LogLocator(subs=(2.0, 5.0), numticks=30))
    axis.set_major_formatter(FuncFormatter(lambda value, _: log_tick(value)))
    axis.set_minor_formatter(NullFormatter())


def log_tick(value: float) -> str:
    """A tick of a logarithmic axis: 0.01, 5, 1,000, 10⁻⁶, 2 × 10⁷."""
    if 1e-3 <= value < 1e5:
        return f"{value:,.10g}" if value >= 1e4 else f"{value:.10g}"
    power = math.floor(math.log10(value) + 1e-9)
    factor = f"{value / 10.0**power:.3g}"
    return f"10{superscript(power)}" if factor == "1" else f"{factor} × 10{superscript(power)}"
