"""Figures and tables of the book: light and dark, described in words, the same bytes in every run.

A figure is a function of axes and theme:

.. code-block:: python

    def draw(axes, theme):
        plots.tradeoff(axes, theme, summary, x="alpha", by="method")
        axes.set(xlabel="excess risk α", ylabel="privacy loss ε")
        plots.log_axis(axes, "y")
        plots.legend(axes)

    plots.figure(draw, name="loss-by-accuracy", alt="Privacy loss falls as the allowed risk grows; ...")

`adaptive_dp.notebook` says how to place it in a page.
"""

from adaptive_dp.plots.drawings import (
    baseline,
    breakdown,
    direct_labels,
    ecdf,
    histogram,
    legend,
    log_axis,
    scatter,
    tradeoff,
)
from adaptive_dp.plots.figure import SITE_CSS, Figure, figure
from adaptive_dp.plots.frames import Frames, frames
from adaptive_dp.plots.hover import Hover, hover, hover_frames
from adaptive_dp.plots.numbers import format_number
from adaptive_dp.plots.table import Table, table
from adaptive_dp.plots.theme import DARK, LIGHT, Theme, contrast_ratio

__all__ = [
    "DARK",
    "LIGHT",
    "SITE_CSS",
    "Figure",
    "Frames",
    "Hover",
    "Table",
    "Theme",
    "baseline",
    "breakdown",
    "contrast_ratio",
    "direct_labels",
    "ecdf",
    "figure",
    "format_number",
    "frames",
    "histogram",
    "hover",
    "hover_frames",
    "legend",
    "log_axis",
    "scatter",
    "table",
    "tradeoff",
]
