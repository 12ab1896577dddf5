"""The one style of all figures, for a light and for a dark page.

The palette of Okabe and Ito (2008) keeps apart for readers with any common form of colour
blindness, but its yellow and two of its light hues nearly vanish on white. So each theme has six
colours of its own, chosen by a search for the largest CIELAB distance of the closest pair, over
normal sight and the three dichromacies as simulated by Machado, Oliveira and Fernandes (2009), with
a contrast of at least 3:1 on the page. The tests compute all of this again. Colour is never the only
cue: series also differ in marker and in dash pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from cycler import cycler
from matplotlib.colors import to_rgb
from matplotlib.font_manager import fontManager

from adaptive_dp.validation import check_count

MARKERS = ("o", "s", "^", "D", "v", "P")
# Dash patterns in units of the line width: solid, dashed, dotted, dash-dot, long dash, dash-dot-dot.
DASHES: tuple[Any, ...] = (
    "solid",
    (0, (5, 2)),
    (0, (1, 1.4)),
    (0, (6, 1.6, 1.2, 1.6)),
    (0, (9, 2.5)),
    (0, (6, 1.6, 1.2, 1.6, 1.2, 1.6)),
)
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++")


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of one rendering; every colour is a hexadecimal ``#rrggbb``.

    Parameters
    ----------
    name : str
        ``"light"`` or ``"dark"``.
    background, text, muted, grid : str
        Page, words and axes, reference lines and remarks, grid lines.
    colours : tuple of str
        Six series colours, contrast at least 3:1 on the background.
    """

    name: str
    background: str
    text: str
    muted: str
    grid: str
    colours: tuple[str, ...]

    def colour(self, index: int) -> str:
        """Colour of series ``index``; more series than colours are refused."""
        if check_count("index", index, minimum=0) >= len(self.colours):
            raise ValueError(f"index must be below {len(self.colours)}: split the figure, got {index}")
        return self.colours[index]

    def curve(self, index: int) -> dict[str, Any]:
        """Keyword arguments of ``Axes.plot`` for a smooth curve: colour and dashes."""
        return {"color": self.colour(index), "linestyle": DASHES[index]}

    def line(self, index: int) -> dict[str, Any]:
        """Keyword arguments of ``Axes.plot`` for a few measured points: as `curve`, with markers."""
        return {**self.curve(index), "marker": MARKERS[index], "markeredgecolor": self.background}

    def bar(self, index: int) -> dict[str, Any]:
        """Keyword arguments of ``Axes.bar`` for series ``index``: colour, edge and hatch."""
        return {
            "facecolor": self.colour(index),
            "edgecolor": self.background,
            "hatch": HATCHES[index],
            "linewidth": 0.8,
        }

    def settings(self) -> dict[str, Any]:
        """Matplotlib settings of this theme, to be laid over matplotlib's own defaults.

        Type of 12 points on a figure 5.6 inches wide stays about 10 pixels high on a phone 390 pixels
        wide.
        """
        return {
            "figure.facecolor": self.background,
            "savefig.facecolor": self.background,
            "savefig.edgecolor": self.background,
            "axes.facecolor": self.background,
            "axes.edgecolor": self.text,
            "axes.labelcolor": self.text,
            "axes.titlecolor": self.text,
            "text.color": self.text,
            "xtick.color": self.text,
            "ytick.color": self.text,
            "grid.color": self.grid,
            "legend.facecolor": self.background,
            "legend.edgecolor": self.grid,
            "legend.frameon": False,
            "legend.handlelength": 2.6,
            "font.family": ["DejaVu Sans"],
            "font.size": 12.5,
            "axes.titlesize": 13,
            "axes.labelsize": 12.5,
            "xtick.labelsize": 12,
            "ytick.labelsize": 12,
            "legend.fontsize": 12,
            "axes.grid": True,
            "axes.axisbelow": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.linewidth": 0.9,
            "grid.linewidth": 0.6,
            "lines.linewidth": 1.9,
            "lines.markersize": 6.5,
            "hatch.color": self.background,
            "hatch.linewidth": 0.9,
            # No markers here: a curve of 200 points must not become 200 markers by default.
            "axes.prop_cycle": cycler(color=list(self.colours), linestyle=list(DASHES)),
            "svg.fonttype": "path",
            "svg.image_inline": True,
            "path.simplify": True,
        }


LIGHT = Theme(
    name="light",
    background="#ffffff",
    text="#222832",
    muted="#5a6472",
    grid="#dde1e6",
    colours=("#0042c3", "#8a3000", "#15a277", "#692d77", "#b68806", "#141414"),
)
DARK = Theme(
    name="dark",
    background="#121212",
    text="#ced6dd",
    muted="#9aa5b1",
    grid="#333a44",
    colours=("#0fc2ff", "#d17327", "#4c8c68", "#ff3cbf", "#f0c210", "#ededed"),
)
THEMES = (LIGHT, DARK)


def contrast_ratio(first: str, second: str) -> float:
    """Contrast of two colours by the Web Content Accessibility Guidelines 2.1, between 1 and 21."""
    high, low = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    """Relative luminance of an sRGB colour (WCAG 2.1, definition of relative luminance)."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _prefer_bundled_fonts() -> None:
    """Put matplotlib's own copy of DejaVu Sans before the system's.

    Both carry the same name and score, their outlines differ a little, and which one is found first depends on a cache
    outside this project. This only orders matplotlib's list of fonts; it changes no setting.
    """
    own = str(Path(matplotlib.get_data_path()) / "fonts")
    fontManager.ttflist.sort(key=lambda entry: not str(entry.fname).startswith(own))


_prefer_bundled_fonts()
