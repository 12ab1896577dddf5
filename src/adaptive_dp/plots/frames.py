"""A slider over precomputed frames: moves in a static page, offline, and in Jupyter."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from adaptive_dp.plots.figure import Draw, check_alt, check_name, picture, render_both
from adaptive_dp.plots.numbers import format_number
from adaptive_dp.plots.theme import Theme

Value = TypeVar("Value")

# What changes between frames and themes: paths and colours. The rest, above all the letters, is shared.
_CHANGING = re.compile(r'( style="[^"]*"| d="[^"]*"| [xy]="[^"]*"|<use [^>]*>)')

# Each copy of the output on a page is bound once; "bound" guards against a second run of the script.
_SCRIPT = """\
(function (parts, frames) {
  document.querySelectorAll('[data-frames="NAME"]').forEach(function (root) {
    if (root.dataset.bound) { return; }
    root.dataset.bound = "yes";
    var images = root.querySelectorAll("img");
    var slider = root.querySelector("input");
    var output = root.querySelector("output");
    function show() {
      var frame = frames[Number(slider.value)];
      images.forEach(function (image, theme) {
        var svg = frame.svg[theme].map(function (part) { return parts[part]; }).join("");
        image.src = "data:image/svg+xml," + encodeURIComponent(svg);
        image.alt = frame.alt;
      });
      output.textContent = frame.text;
      slider.setAttribute("aria-valuetext", frame.text);
    }
    slider.addEventListener("input", show);
    root.querySelector("[data-controls]").hidden = false;
    show();
  });
})(PARTS, FRAMES);"""


@dataclass(frozen=True, slots=True, repr=False)
class Frames:
    """A slider with its frames; the page needs nothing else.

    Parameters
    ----------
    name : str
        Identifier: lower-case letters, digits and hyphens.
    label : str
        What the slider changes.
    texts : tuple of str
        The value of each frame as the reader sees it.
    alts : tuple of str
        Description of each frame.
    pictures : tuple of (str, str)
        Light and dark SVG of each frame.
    """

    name: str
    label: str
    texts: tuple[str, ...]
    alts: tuple[str, ...]
    pictures: tuple[tuple[str, str], ...]

    def _repr_html_(self) -> str:
        return self.below(picture(*self.pictures[0], self.alts[0]))

    def below(self, stage: str) -> str:
        """HTML of the slider below ``stage``, which holds the picture of the first frame and perhaps more."""
        control, label = f"frames-{self.name}", html.escape(self.label, quote=True)
        # The controls stay hidden until the script runs: without it the first frame stands alone.
        return (
            f'<div class="figure-frames" data-frames="{self.name}">'
            f"{stage}"
            f'<div data-controls hidden><label for="{control}">{label}: </label>'
            f'<input type="range" id="{control}" min="0" max="{len(self.texts) - 1}" step="1" value="0" '
            f'aria-valuetext="{html.escape(self.texts[0], quote=True)}" '
            f'style="width:min(20em,60%);vertical-align:middle"> '
            f'<output for="{control}">{html.escape(self.texts[0])}</output></div>'
            f"<script>{self._script()}</script></div>"
        )

    def _script(self) -> str:
        parts: dict[str, int] = {}
        shown = [
            {"text": text, "alt": alt, "svg": [_split(svg, parts) for svg in pair]}
            for text, alt, pair in zip(self.texts, self.alts, self.pictures, strict=True)
        ]
        script = _SCRIPT.replace("NAME", self.name)
        return script.replace("PARTS, FRAMES", f"{literal(list(parts))}, {literal(shown)}")

    def __repr__(self) -> str:
        return f"Frames {self.name}: {self.label} from {self.texts[0]} to {self.texts[-1]}. {self.alts[0]}"


def _split(svg: str, parts: dict[str, int]) -> list[int]:
    """Numbers of the parts of ``svg``; parts not yet seen are added to ``parts``."""
    return [parts.setdefault(part, len(parts)) for part in _CHANGING.split(svg) if part]


def literal(value: object) -> str:
    """A JavaScript literal that cannot end the script element around it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\x3c")


def frames(
    draw_frame: Callable[[Any, Theme, Value], None],
    values: Sequence[Value],
    *,
    label: str,
    alt: str | Callable[[Value], str],
    name: str,
    size: tuple[float, float] = (5.0, 3.2),
    text: Callable[[Value], str] = format_number,
) -> Frames:
    """Draw one frame per value and put a slider under them.

    Set the limits of the axes inside ``draw_frame``, so that the frames can be compared. A dozen
    line drawings take about 250 kB.

    Parameters
    ----------
    draw_frame : callable
        ``draw_frame(axes, theme, value)``; see `figure` for what is asked of a drawing.
    values : sequence
        At least two values; each becomes a position of the slider.
    label : str
        What the slider changes, for example ``"epsilon"``.
    alt : str or callable
        Description of a frame; the text may hold ``{value}``, a callable takes the value.
    name : str
        Identifier: lower-case letters, digits and hyphens. Unique in a page.
    size : (float, float)
        Width and height in inches.
    text : callable
        Turns a value into what the reader sees beside the slider.

    Returns
    -------
    Frames

    Raises
    ------
    ValueError
        If there are fewer than two values, the label is empty, or a frame is refused by `figure`.
    """
    check_name(name)
    if len(values) < 2:
        raise ValueError(f"values must hold at least two frames, got {len(values)}")
    if not label.strip():
        raise ValueError(f"label must say what the slider changes, got {label!r}")
    texts = tuple(text(value) for value in values)
    alts = tuple(
        check_alt(alt(value) if callable(alt) else alt.replace("{value}", shown))
        for value, shown in zip(values, texts, strict=True)
    )

    def draw_at(value: Value) -> Draw:
        return lambda axes, theme: draw_frame(axes, theme, value)

    # The salt is the same in all frames: each picture is a document of its own.
    pictures = tuple(render_both(draw_at(value), name, size) for value in values)
    return Frames(name=name, label=label, texts=texts, alts=alts, pictures=pictures)
