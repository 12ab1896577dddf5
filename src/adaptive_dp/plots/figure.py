"""A figure is drawn twice, for light and for dark pages, and carries its own description."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas

from adaptive_dp.plots.theme import DARK, LIGHT, Theme
from adaptive_dp.validation import check_count, check_positive

Draw = Callable[[Any, Theme], None]
"""``draw(axes, theme)``: one ``Axes`` for a single panel, an array of them, shape (rows, columns), for more."""

SHORTEST_ALT = 40
# A class of the site's theme that keeps it from dimming the picture a second time.
_KEEP_COLOURS = "dark-light"


def _colours(theme: Theme) -> tuple[str, ...]:
    return (theme.background, theme.text, theme.muted, theme.grid, *theme.colours)


_DARK_OF = dict(zip(_colours(LIGHT), _colours(DARK), strict=True))
_LIGHT_COLOUR = re.compile("|".join(map(re.escape, _DARK_OF)))

_GLYPH = re.compile(r'(id="|href="#)(DejaVu[\w.-]*-[0-9a-f]+)"')

SITE_CSS = """\
html[data-theme="dark"] img.figure-light { display: none; }
html[data-theme="dark"] img.figure-dark { display: inline !important; }
html[data-theme="dark"] .bd-content img.figure-dark,
html[data-theme="dark"] .bd-content div.cell_output img.figure-dark,
html[data-theme="dark"] .bd-content div.cell_output .text_html.text_html:has(img.figure-dark) {
  background-color: transparent; border-radius: 0; color: inherit; filter: none; padding: 0;
}
.bd-article .pasted-text { font-weight: inherit; }
"""
"""Rules that the style sheet of the site must hold.

They put the dark rendering in place of the light one on a dark page, keep the theme from laying its
own light ground under it, and set glued numbers in the weight of their sentence.
"""


@dataclass(frozen=True, slots=True, repr=False)
class Figure:
    """Two renderings of one drawing, with a description for those who do not see it.

    Parameters
    ----------
    name : str
        Identifier: lower-case letters, digits and hyphens.
    alt : str
        What the figure shows, in words, at least 40 characters.
    svg_light, svg_dark : str
        Complete SVG documents; the bytes depend on the drawing only.
    """

    name: str
    alt: str
    svg_light: str
    svg_dark: str

    def __post_init__(self) -> None:
        check_name(self.name)
        check_alt(self.alt)

    def _repr_html_(self) -> str:
        return picture(self.svg_light, self.svg_dark, self.alt)

    def __repr__(self) -> str:
        return f"Figure {self.name}: {self.alt}"


def figure(
    draw: Draw,
    *,
    alt: str,
    name: str,
    size: tuple[float, float] = (5.6, 3.5),
    panels: tuple[int, int] = (1, 1),
    sharex: bool = False,
    sharey: bool = False,
) -> Figure:
    """Draw a figure for light and for dark pages.

    Nothing global is touched: matplotlib's settings are laid over its own defaults while drawing and
    restored afterwards, and ``pyplot`` is not used.

    Parameters
    ----------
    draw : callable
        ``draw(axes, theme)``, called once per theme. It must not draw random numbers: simulate first.
    alt : str
        What the figure shows and what follows from it, at least 40 characters.
    name : str
        Identifier: lower-case letters, digits and hyphens.
    size : (float, float)
        Width and height in inches. At 5.6 wide the type is still 10 pixels high on a phone; two panels
        side by side want 6.4.
    panels : (int, int)
        Rows and columns.
    sharex, sharey : bool
        Whether the panels share their axes; then the outer panels alone need labels.

    Returns
    -------
    Figure

    Raises
    ------
    ValueError
        If the alternative text is missing or too short, an axis has no label, the name is no
        identifier, or nothing was drawn.
    """
    check_name(name)
    check_alt(alt)
    light, dark = render_both(draw, name, size, panels, sharex, sharey)
    return Figure(name=name, alt=alt, svg_light=light, svg_dark=dark)


def render_both(
    draw: Draw,
    name: str,
    size: tuple[float, float],
    panels: tuple[int, int] = (1, 1),
    sharex: bool = False,
    sharey: bool = False,
) -> tuple[str, str]:
    """The SVG documents for light and for dark pages; arguments as in `figure`.

    A drawing takes all its colours from the theme, so the dark document is the light one in other colours: laying
    out a figure costs most of the time and is done once. Pixels inside a document cannot be recoloured; such a
    drawing is rendered twice.
    """
    light = render(draw, LIGHT, name, size, panels, sharex, sharey)
    if "<image" in light:
        return light, render(draw, DARK, name, size, panels, sharex, sharey)
    return light, recolour(light)


def recolour(svg: str) -> str:
    """An SVG document drawn with the light theme, in the colours of the dark one."""
    return _LIGHT_COLOUR.sub(lambda match: _DARK_OF[match.group()], svg)


def render(
    draw: Draw,
    theme: Theme,
    name: str,
    size: tuple[float, float],
    panels: tuple[int, int] = (1, 1),
    sharex: bool = False,
    sharey: bool = False,
) -> str:
    """One SVG document of a drawing in one theme; arguments as in `figure`."""
    width, height = (check_positive("size", side) for side in size)
    rows, columns = (check_count("panels", count) for count in panels)
    with mpl.rc_context():
        mpl.rcdefaults()
        settings: Any = {**theme.settings(), "svg.hashsalt": f"{name} {theme.name}"}
        mpl.rcParams.update(settings)
        canvas = Canvas(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(canvas)
        axes = canvas.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
        draw(axes[0, 0] if rows == columns == 1 else axes, theme)
        check_labels(canvas)
        file = io.BytesIO()
        # Date, program and version would change the bytes without changing the picture.
        canvas.savefig(
            file,
            format="svg",
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
            dpi=144,
        )
    return compact(file.getvalue().decode("utf-8"))


def picture(svg_light: str, svg_dark: str, alt: str) -> str:
    """HTML of both renderings; without the site's style sheet the light one shows.

    The inline style of the dark one matters in Jupyter, which knows nothing of our style sheet.
    """
    text = html.escape(alt, quote=True)
    size = "max-width:100%;height:auto"
    return (
        f'<img class="figure-light" style="{size}" alt="{text}" src="{_data_uri(svg_light)}">'
        f'<img class="figure-dark {_KEEP_COLOURS}" style="display:none;{size}" alt="{text}" '
        f'src="{_data_uri(svg_dark)}">'
    )


def _data_uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode("utf-8")).decode("ascii")


def check_name(name: str) -> str:
    """Return ``name`` if it can serve as an identifier in a page."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ValueError(f"name must be lower-case words joined by hyphens, got {name!r}")
    return name


def check_alt(alt: str) -> str:
    """Return ``alt`` if it is long enough to describe something."""
    if not isinstance(alt, str) or len(alt.split()) < 5 or len(alt.strip()) < SHORTEST_ALT:
        raise ValueError(f"alt must say what is seen, in at least {SHORTEST_ALT} characters, got {alt!r}")
    return alt


def check_labels(canvas: Canvas) -> None:
    """Refuse a figure that is empty or has an axis that says nothing about what it shows."""
    shown = [axes for axes in canvas.axes if axes.get_visible() and axes.axison]
    if not any(axes.has_data() for axes in shown):
        raise ValueError("draw left every panel empty")
    for position, axes in enumerate(shown):
        horizontal = canvas.get_supxlabel() or _label(_siblings(axes, "x"), "xlabel")
        vertical = canvas.get_supylabel() or _label(_siblings(axes, "y"), "ylabel")
        if axes.get_label() == "<colorbar>":
            horizontal = vertical = axes.get_xlabel() or axes.get_ylabel()
        for direction, text in (("x", horizontal), ("y", vertical)):
            if not text.strip():
                raise ValueError(f"panel {position} of the drawing has no {direction} label")


def _siblings(axes: Axes, direction: str) -> list[Axes]:
    """The axes itself and those that share its ``direction`` axis."""
    group = axes.get_shared_x_axes() if direction == "x" else axes.get_shared_y_axes()
    return [axes, *group.get_siblings(axes)]


def _label(axes: Iterable[Axes], which: str) -> str:
    return next((text for one in axes if (text := getattr(one, f"get_{which}")().strip())), "")


_COORDINATES = re.compile(r'(?<=[ "])(d|x|y|points)="([^"]*)"')
_TRANSLATION = re.compile(r"translate\([^)]*\)")
_DECIMAL = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


def compact(svg: str) -> str:
    """Drop comments, metadata and invisible digits of an SVG document.

    Coordinates are rounded to 1/100 of a point: no eye sees it, the file is a third smaller, and the
    last digits, which depend on the processor, are gone. Identifiers that nothing refers to go too.
    """
    svg = re.sub(r"<!--.*?-->|<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = _COORDINATES.sub(lambda match: f'{match[1]}="{_DECIMAL.sub(_round, match[2])}"', svg)
    svg = _TRANSLATION.sub(lambda match: _DECIMAL.sub(_round, match[0]), svg)
    used = set(re.findall(r"#([\w-]+)", svg))
    svg = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in used else "", svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg).strip()
    return _number_glyphs(re.sub(r">\n<", "><", svg).replace("\n", " ") + "\n")


def _number_glyphs(svg: str) -> str:
    """Name the letters of a document by their order in it.

    matplotlib names some of them by the order of their first use in the whole process, which differs between two
    runs of a notebook that draw the same picture.
    """
    order: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        return match.group(1) + order.setdefault(match.group(2), f"letter-{len(order)}") + '"'

    return _GLYPH.sub(rename, svg)


def _round(match: re.Match[str]) -> str:
    rounded = np.round(float(match[0]), 2) + 0.0  # + 0.0 turns -0.0 into 0.0
    return f"{rounded:.2f}".rstrip("0").rstrip(".")
