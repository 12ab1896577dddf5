"""Figure 1 of neel2019, drawn again. Each function returns a finished figure; none of them draws random numbers.

The descriptions for readers who do not see a figure are computed from the numbers, so that they stay true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from adaptive_dp.oracle_perturbation.adult_tables import FAMILIES, summary_of
from adaptive_dp.plots import drawings
from adaptive_dp.plots.figure import Figure, figure
from adaptive_dp.plots.numbers import format_number
from adaptive_dp.plots.theme import Theme

SIDESTEP = 1.07
# Dashes of the level lines: what needs no noise.
LEVEL: tuple[Any, ...] = ((0, (4, 3)), (0, (1, 2)))
NAMES = {"OPDisc": "OPDisc", "RSPM": "RSPM", "Simplex": "Simplex", "regression": "logistic regression"}


def draw_accuracy(
    panels: Mapping[str, pd.DataFrame],
    methods: Sequence[str],
    references: Mapping[str, Mapping[str, float]],
    *,
    name: str,
    bottom: float = 0.5,
) -> Figure:
    """Figure 1, left: training accuracy against epsilon, mean and one standard deviation.

    Parameters
    ----------
    panels : mapping
        Runs (:func:`~.adult_experiment.adult_runs`) by the title of their panel.
    methods : sequence of str
        What is drawn, at most six.
    references : mapping
        For each panel at most two level lines: their names in the legend, and accuracies.
    name : str
        Identifier of the figure.
    bottom : float
        Lower end of the axis; means below it are out of the frame.
    """
    frames = {
        title: pd.concat([summary_of(runs[runs["method"] == method]) for method in methods])
        for title, runs in panels.items()
    }
    lines = [value for reference in references.values() for value in reference.values()]
    top = max([*(float(frame["mean"].max()) for frame in frames.values()), *lines]) + 0.025

    def draw(axes: Any, theme: Theme) -> None:
        for place, (title, frame) in zip(np.ravel(axes), frames.items(), strict=True):
            _draw_means(place, theme, frame)
            for dashes, (label, value) in zip(LEVEL, references.get(title, {}).items(), strict=False):
                place.axhline(
                    value, label=label, color=theme.muted, linewidth=1.2, linestyle=dashes, zorder=1.5
                )
            drawings.log_axis(place, "x")
            place.set_ylim(bottom, top)
            place.set_title(title)
            place.set_ylabel("training accuracy")
        np.ravel(axes)[-1].set_xlabel("epsilon")
        drawings.legend(list(np.ravel(axes)))

    text = ". ".join(f"{title}: {_ends(frame)}" for title, frame in frames.items())
    return figure(
        draw,
        name=name,
        size=(5.6, 1.4 + 3.2 * len(panels)),
        panels=(len(panels), 1),
        sharex=True,
        alt=f"Training accuracy against epsilon by method, log scale, smallest epsilon to largest. {text}.",
    )


def _draw_means(axes: Axes, theme: Theme, frame: pd.DataFrame) -> None:
    """Lines with bars of one standard deviation, moved apart sideways so that bars do not hide one another."""
    groups = list(frame.groupby("method", sort=False))
    for index, (method, part) in enumerate(groups):
        ordered = part.sort_values("epsilon", kind="stable")
        aside = SIDESTEP ** (index - 0.5 * (len(groups) - 1))
        bars = ordered["sd"].fillna(0.0)
        axes.errorbar(
            ordered["epsilon"] * aside,
            ordered["mean"],
            yerr=bars,
            label=str(method),
            elinewidth=1.0,
            markersize=5,
            **{**theme.line(index), "linewidth": 1.4},
        )


def _ends(frame: pd.DataFrame) -> str:
    return ", ".join(
        f"{method} from {format_number(float(part['mean'].iloc[0]), 3)} to "
        f"{format_number(float(part['mean'].iloc[-1]), 3)}"
        for method, part in frame.sort_values("epsilon", kind="stable").groupby("method", sort=False)
    )


def draw_times(runs: pd.DataFrame, *, name: str, bins: int = 16) -> Figure:
    """Figure 1, right: histogram of the processor time of single runs, by family.

    Parameters
    ----------
    runs : DataFrame
        Recorded runs; they are not measured again, so that the picture stays the same.
    name : str
    bins : int
        Equal parts of the logarithmic axis.
    """
    families = runs["method"].map(FAMILIES)
    seconds = {f: runs.loc[families == f, "seconds"] for f in NAMES if (families == f).any()}
    smallest = max(min(float(part.min()) for part in seconds.values()), 1e-4)
    edges = np.geomspace(smallest, max(float(part.max()) for part in seconds.values()) * 1.001, bins + 1)

    def draw(axes: Axes, theme: Theme) -> None:
        for index, (family, part) in enumerate(seconds.items()):
            counts, _ = np.histogram(np.clip(part, edges[0], None), edges)
            axes.stairs(
                counts / len(part),
                edges,
                label=NAMES[family],
                linewidth=1.9,
                color=theme.colour(index),
                linestyle=theme.curve(index)["linestyle"],
            )
        drawings.log_axis(axes, "x")
        axes.set_xlabel("processor seconds of one run")
        axes.set_ylabel("share of the runs")
        drawings.legend(axes)

    text = "; ".join(
        f"{NAMES[family]} median {format_number(float(part.median()), 2)} s, largest "
        f"{format_number(float(part.max()), 2)} s"
        for family, part in seconds.items()
    )
    return figure(draw, name=name, alt=f"Histogram of the processor time of one run, log scale: {text}.")
