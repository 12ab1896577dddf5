"""A figure whose points tell their values: under the pointer, on a tap, or by the arrow keys.

The picture is the ordinary light and dark one. A script lays a ring and a small panel over it; the places of the
points come from matplotlib's own transform, as percentages of the picture, so they scale with the page. Nothing is
loaded, and without a script the picture stands alone.

.. code-block:: python

    people = pd.DataFrame({"x": ..., "y": ..., "leverage": ..., "loss": ...})      # the index numbers the persons

    def draw(axes, theme):
        plots.scatter(axes, theme, people["x"], people["y"])
        axes.set(xlabel="first feature", ylabel="second feature")

    plots.hover(draw, people, columns=["leverage", "loss"], point="person", name="who-pays", alt="...")
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from adaptive_dp.plots.figure import Draw, Figure, figure, picture
from adaptive_dp.plots.frames import Frames, frames, literal
from adaptive_dp.plots.numbers import format_number
from adaptive_dp.plots.theme import LIGHT, Theme
from adaptive_dp.validation import FloatArray, as_finite_array

Value = TypeVar("Value")
Columns = Sequence[str] | Mapping[str, str]

_HELP = (
    "Point at a dot or tap it to read its values. With the keyboard: Tab to the picture, then the arrow keys."
)
# The colours of the book's theme where it is there, those of the light picture elsewhere (Jupyter).
_TEXT = f"var(--pst-color-text-base,{LIGHT.text})"
_GROUND = f"var(--pst-color-background,{LIGHT.background})"
_EDGE = f"var(--pst-color-text-muted,{LIGHT.muted})"

_STAGE = "position:relative;isolation:isolate;display:inline-block;max-width:100%;line-height:0"
_KEYS = "position:absolute;inset:0;pointer-events:none"
_RING = (
    "position:absolute;width:16px;height:16px;margin:-8px 0 0 -8px;box-sizing:border-box;pointer-events:none;"
    f"border:2px solid {_TEXT};border-radius:50%"
)
_PANEL = (
    "position:absolute;width:max-content;max-width:100%;box-sizing:border-box;padding:.3em .6em;pointer-events:none;"
    f"color:{_TEXT};background:{_GROUND};border:1px solid {_EDGE};border-radius:4px;"
    "font-size:.85em;line-height:1.4;text-align:left"
)
_SPOKEN = "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap"

# Each copy of the output on a page is bound once; "bound" guards against a second run of the script. A click or a key
# pins a point; while the pointer rests near another one, that one shows. What a reader sees is also said, except for
# the pointer's way across the picture: a pointer needs eyes, and would never let the voice finish.
_SCRIPT = """\
(function (data) {
  var reach = 28, gap = 14, last = data.headings.length - 1;
  var steps = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10};
  document.querySelectorAll('[data-hover="NAME"]').forEach(function (root) {
    if (root.dataset.bound) { return; }
    root.dataset.bound = "yes";
    function part(name) { return root.querySelector("[data-" + name + "]"); }
    var stage = part("stage"), keys = part("keys"), ring = part("ring"), panel = part("panel"), spoken = part("spoken");
    var slider = root.querySelector("input");
    var pinned = -1, shown = -1;
    function frame() { return data.frames[slider ? Number(slider.value) : 0]; }
    function spot(point) {
      var places = data.places[frame()[0]];
      var image = Array.from(stage.querySelectorAll("img")).find(function (one) { return one.offsetWidth > 0; });
      return {
        x: image.offsetLeft + image.offsetWidth * places[2 * point] / 100,
        y: image.offsetTop + image.offsetHeight * places[2 * point + 1] / 100
      };
    }
    function nearest(event) {
      var box = stage.getBoundingClientRect(), best = -1, closest = reach;
      for (var point = 0; point <= last; point++) {
        var at = spot(point), distance = Math.hypot(box.left + at.x - event.clientX, box.top + at.y - event.clientY);
        if (distance < closest) { closest = distance; best = point; }
      }
      return best;
    }
    function lines(point) {
      return data.names.map(function (name, column) { return [name, frame()[1][point][column]]; });
    }
    function between(value, most) { return Math.max(0, Math.min(value, most)); }
    function show(point) {
      shown = point;
      ring.hidden = panel.hidden = point < 0;
      if (point < 0) { return; }
      panel.replaceChildren();
      [[data.headings[point]]].concat(lines(point)).forEach(function (texts) {
        var line = panel.appendChild(document.createElement("div"));
        line.style.cssText = "display:flex;justify-content:space-between;gap:1.2em";
        texts.forEach(function (text) {
          line.appendChild(document.createElement(texts.length > 1 ? "span" : "strong")).textContent = text;
        });
      });
      var at = spot(point), width = panel.offsetWidth, height = panel.offsetHeight;
      var left = at.x + gap, top = between(at.y - height / 2, stage.clientHeight - height);
      if (left + width > stage.clientWidth) { left = at.x - gap - width; }
      if (left < 0) {
        left = between(at.x - width / 2, stage.clientWidth - width);
        top = at.y < gap + height ? at.y + gap : at.y - gap - height;
      }
      ring.style.left = at.x + "px";
      ring.style.top = at.y + "px";
      panel.style.left = left + "px";
      panel.style.top = top + "px";
    }
    function pin(point) {
      pinned = point;
      show(point);
      spoken.textContent = point < 0 ? "" : data.headings[point] + ": " +
        lines(point).map(function (pair) { return pair.join(" "); }).join(", ");
    }
    stage.addEventListener("pointermove", function (event) {
      if (event.pointerType === "touch") { return; }
      var point = nearest(event);
      show(point < 0 ? pinned : point);
    });
    stage.addEventListener("pointerleave", function () { show(pinned); });
    stage.addEventListener("click", function (event) {
      pin(nearest(event));
      keys.focus({preventScroll: true});
    });
    keys.addEventListener("keydown", function (event) {
      var step = steps[event.key];
      if (event.ctrlKey || event.altKey || event.metaKey) { return; }
      if (event.key === "Escape") { pin(-1); }
      else if (event.key === "Home") { pin(0); }
      else if (event.key === "End") { pin(last); }
      else if (step && pinned < 0) { pin(step > 0 ? 0 : last); }
      else if (step) { pin(between(pinned + step, last)); }
      else { return; }
      event.preventDefault();
      event.stopPropagation();
    });
    if (slider) { slider.addEventListener("input", function () { pin(pinned); }); }
    window.addEventListener("resize", function () { if (stage.offsetWidth > 0) { show(shown); } });
    keys.hidden = part("help").hidden = false;
  });
})(DATA);"""


@dataclass(frozen=True, slots=True, repr=False)
class Hover:
    """A figure or a slider with the values of its points; the page needs nothing else.

    Parameters
    ----------
    base : Figure or Frames
        What is seen without pointing.
    headings : tuple of str
        Name of each point.
    names : tuple of str
        Names of the values that each point shows.
    places : tuple of tuple of float
        For each frame (one, if ``base`` is a figure) the places of the points, x and y in turn, in percent of the
        picture from its upper left corner.
    texts : tuple of tuple of tuple of str
        For each frame and point the values as the reader sees them, one a name.
    """

    base: Figure | Frames
    headings: tuple[str, ...]
    names: tuple[str, ...]
    places: tuple[tuple[float, ...], ...]
    texts: tuple[tuple[tuple[str, ...], ...], ...]

    @property
    def name(self) -> str:
        """Identifier of the figure."""
        return self.base.name

    @property
    def alt(self) -> str:
        """Description of the figure, or of the first frame."""
        return self.base.alt if isinstance(self.base, Figure) else self.base.alts[0]

    def _repr_html_(self) -> str:
        base = self.base
        label = html.escape(f"{len(self.headings)} points with values. Move with the arrow keys.", quote=True)
        first = (base.svg_light, base.svg_dark) if isinstance(base, Figure) else base.pictures[0]
        # The help and the target of the keys stay hidden until the script runs. JupyterLab leaves the keys alone
        # inside an element that suppresses its shortcuts.
        stage = (
            f'<div data-stage style="{_STAGE}">{picture(*first, self.alt)}'
            f'<div data-keys hidden tabindex="0" role="application" aria-label="{label}" '
            f'data-lm-suppress-shortcuts="true" style="{_KEYS}"></div>'
            f'<div data-ring hidden aria-hidden="true" style="{_RING}"></div>'
            f'<div data-panel hidden aria-hidden="true" style="{_PANEL}"></div>'
            f'<div data-spoken aria-live="polite" style="{_SPOKEN}"></div></div>'
        )
        return (
            f'<div class="figure-hover" data-hover="{self.name}">'
            f"{stage if isinstance(base, Figure) else base.below(stage)}"
            f'<div data-help hidden style="font-size:.85em">{_HELP}</div>'
            f"<script>{self._script()}</script></div>"
        )

    def _script(self) -> str:
        # Points that stand still are written once.
        places = list(dict.fromkeys(self.places))
        data = {
            "headings": self.headings,
            "names": self.names,
            "places": places,
            "frames": [
                (places.index(place), cells) for place, cells in zip(self.places, self.texts, strict=True)
            ],
        }
        return _SCRIPT.replace("NAME", self.name).replace("DATA", literal(data))

    def __repr__(self) -> str:
        return f"Hover {self.name}: {self.alt} ({len(self.headings)} points with {', '.join(self.names)})"


def hover(
    draw: Draw,
    points: pd.DataFrame,
    *,
    columns: Columns,
    name: str,
    alt: str,
    x: str = "x",
    y: str = "y",
    point: str = "point",
    digits: int = 3,
    size: tuple[float, float] = (5.6, 3.5),
) -> Hover:
    """Draw a figure whose points show their values when pointed at.

    Parameters
    ----------
    draw : callable
        ``draw(axes, theme)`` for a single panel; see `figure`. It draws the points itself, as it likes.
    points : pandas.DataFrame
        One row a point; the index names them. The arrow keys go through them in this order.
    columns : sequence or mapping
        Columns to show: numbers, truth values or text. A mapping gives their names for the reader.
    name, alt, size
        As in `figure`.
    x, y : str
        Columns with the places of the points, in the units of the axes.
    point : str
        What a point is, for example ``"person"``; the entry of the index follows it.
    digits : int
        Significant digits of floats, 1 to 6.

    Returns
    -------
    Hover

    Raises
    ------
    TypeError
        If ``points`` is no frame, ``columns`` is a text, or a value is neither a number nor text.
    ValueError
        If there is no point, an entry of the index occurs twice, a column is missing, a place is not finite or lies
        outside the axes, or `figure` refuses the drawing.
    """
    shown = _names(columns)
    texts = _texts(points, x, y, shown, digits)
    seen: list[Axes] = []

    def draw_and_keep(axes: Any, theme: Theme) -> None:
        draw(axes, theme)
        seen.append(axes)

    # The layout of the axes is final only after the picture was written.
    base = figure(draw_and_keep, name=name, alt=alt, size=size)
    return Hover(
        base=base,
        headings=_headings(points, point),
        names=tuple(shown.values()),
        places=(_places(seen[0], points, x, y),),
        texts=(texts,),
    )


def hover_frames(
    draw_frame: Callable[[Any, Theme, Value], None],
    points: Callable[[Value], pd.DataFrame],
    values: Sequence[Value],
    *,
    columns: Columns,
    label: str,
    name: str,
    alt: str | Callable[[Value], str],
    x: str = "x",
    y: str = "y",
    point: str = "point",
    digits: int = 3,
    size: tuple[float, float] = (5.0, 3.2),
    text: Callable[[Value], str] = format_number,
) -> Hover:
    """Draw one frame per value with a slider under them, as `frames` does; the points of each frame show its values.

    A point that was clicked or reached by key stays chosen while the slider moves.

    Parameters
    ----------
    draw_frame : callable
        ``draw_frame(axes, theme, value)``, as in `frames`.
    points : callable
        ``points(value)`` returns the points of a frame, as in `hover`; the same index in all frames.
    values, label, name, alt, size, text
        As in `frames`.
    columns, x, y, point, digits
        As in `hover`.

    Returns
    -------
    Hover

    Raises
    ------
    TypeError, ValueError
        As in `hover` and `frames`, or if the index differs between frames.
    """
    shown = _names(columns)
    tables = [points(value) for value in values]
    texts = tuple(_texts(table, x, y, shown, digits) for table in tables)
    for value, table in zip(values, tables, strict=True):
        if not table.index.equals(tables[0].index):
            raise ValueError(f"points must have the same index in all frames, it differs at {value!r}")
    seen: dict[int, Axes] = {}

    def draw_and_keep(axes: Any, theme: Theme, index: int) -> None:
        draw_frame(axes, theme, values[index])
        seen[index] = axes

    base = frames(
        draw_and_keep,
        range(len(values)),
        label=label,
        alt=(lambda index: alt(values[index])) if callable(alt) else alt,
        name=name,
        size=size,
        text=lambda index: text(values[index]),
    )
    return Hover(
        base=base,
        headings=_headings(tables[0], point),
        names=tuple(shown.values()),
        places=tuple(_places(seen[index], table, x, y) for index, table in enumerate(tables)),
        texts=texts,
    )


def _names(columns: Columns) -> dict[str, str]:
    """Columns to show and their names for the reader."""
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of columns, got the text {columns!r}")
    shown = dict(columns) if isinstance(columns, Mapping) else {column: column for column in columns}
    if not shown:
        raise ValueError("columns must name at least one column, got none")
    return shown


def _texts(
    points: pd.DataFrame, x: str, y: str, columns: Mapping[str, str], digits: int
) -> tuple[tuple[str, ...], ...]:
    """The values of each point as the reader sees them, after checking the frame."""
    if not isinstance(points, pd.DataFrame):
        raise TypeError(f"points must be a pandas.DataFrame, got {type(points).__name__}: {points!r}")
    if not len(points):
        raise ValueError("points must have at least one row, got none")
    for column in (x, y, *columns):
        if column not in points.columns:
            raise ValueError(f"points has no column {column!r}, only {list(map(str, points.columns))}")
    repeated = points.index[points.index.duplicated()].tolist()
    if repeated:
        raise ValueError(f"points must have an index without repetition, got {repeated[0]!r} twice")
    cells = [[format_number(value, digits) for value in points[column].tolist()] for column in columns]
    return tuple(zip(*cells, strict=True))


def _headings(points: pd.DataFrame, point: str) -> tuple[str, ...]:
    return tuple(f"{point} {format_number(entry)}".strip() for entry in points.index)


def _places(axes: Axes, points: pd.DataFrame, x: str, y: str) -> tuple[float, ...]:
    """Places of the points in percent of the picture, after it was laid out.

    Two decimals are a twentieth of a pixel; the digits behind them depend on the processor.
    """
    values = np.column_stack(
        [as_finite_array(f"points[{column!r}]", points[column], ndim=1) for column in (x, y)]
    )
    inside: FloatArray = axes.transAxes.inverted().transform(axes.transData.transform(values))
    lost = ~((inside > -1e-6) & (inside < 1 + 1e-6)).all(axis=1)
    if lost.any():
        at = int(np.argmax(lost))
        entry, place = points.index.tolist()[at], ", ".join(f"{value:g}" for value in values[at])
        raise ValueError(f"points must lie inside the axes, got ({place}) at {entry!r}")
    canvas = axes.get_figure(root=True)
    assert isinstance(canvas, Canvas)  # an Axes of a drawing always has one
    shares: FloatArray = canvas.transFigure.inverted().transform(axes.transData.transform(values))
    percent = np.round(100 * np.column_stack([shares[:, 0], 1 - shares[:, 1]]), 2) + 0.0
    return tuple(percent.ravel().tolist())
