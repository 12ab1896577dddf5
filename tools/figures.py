"""Compare figures drawn by two runs: byte for byte where possible, within half a point where not.

The last bits of a sum depend on the processor, so the coordinates in a figure may differ in their last
digit between machines. nbval cannot say "nearly equal"; it blanks the payload of a figure
(``tests/nbval.cfg``), and this module compares what was blanked.
"""

from __future__ import annotations

import base64
import io
import re
from itertools import zip_longest

import numpy as np
from matplotlib.image import imread
from nbformat import NotebookNode

from tools.notebooks import code_cells

POINTS = 0.5
"""Largest distance between two coordinates of an SVG figure, in points."""
SHADE = 2 / 255
"""Largest mean difference between the pixels of two PNG figures."""

PAYLOAD = re.compile(r"data:image/(svg\+xml|png);base64,([A-Za-z0-9+/=\s]+)")
HASHED = re.compile(r"\b(?:[a-z]|image)[0-9a-f]{10}\b")
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def figures(notebook: NotebookNode) -> list[tuple[int, str, bytes]]:
    """Return cell number, kind (``"svg+xml"`` or ``"png"``) and bytes of every figure, in order."""
    found = []
    for index, cell in code_cells(notebook):
        for output in cell.outputs:
            data = output.get("data", {})
            for kind, payload in PAYLOAD.findall(data.get("text/html", "")):
                found.append((index, kind, base64.b64decode(payload)))
            if "image/png" in data:
                found.append((index, "png", base64.b64decode(data["image/png"])))
            if "image/svg+xml" in data:
                found.append((index, "svg+xml", data["image/svg+xml"].encode()))
    return found


def _rename(text: str) -> str:
    """Number the identifiers that matplotlib derives from a hash of the coordinates."""
    names: dict[str, str] = {}
    return HASHED.sub(lambda found: names.setdefault(found.group(), f"name-{len(names)}-"), text)


def svg_difference(old: bytes, new: bytes) -> str:
    """Say how two SVG figures differ by more than ``POINTS``, or return an empty text."""
    texts = [_rename(data.decode("utf-8")) for data in (old, new)]
    if NUMBER.sub("#", texts[0]) != NUMBER.sub("#", texts[1]):
        return "other elements"
    numbers = [np.array(NUMBER.findall(text), dtype=np.float64) for text in texts]
    gap = float(np.max(np.abs(numbers[0] - numbers[1]), initial=0.0))
    return f"coordinates up to {gap:.3g} points apart" if gap > POINTS else ""


def png_difference(old: bytes, new: bytes) -> str:
    """Say how two PNG figures differ by more than ``SHADE``, or return an empty text."""
    images = [imread(io.BytesIO(data)) for data in (old, new)]
    if images[0].shape != images[1].shape:
        return f"sizes {images[0].shape} and {images[1].shape}"
    gap = float(np.mean(np.abs(images[0] - images[1])))
    return f"pixels {gap:.3g} apart in the mean" if gap > SHADE else ""


def difference(stored: NotebookNode, fresh: NotebookNode) -> list[str]:
    """Name every figure of ``stored`` that ``fresh`` draws differently."""
    found = []
    for position, pair in enumerate(zip_longest(figures(stored), figures(fresh)), start=1):
        old, new = pair
        if old is None or new is None or old[:2] != new[:2]:
            found.append(f"figure {position}: present in one run only")
        elif old[2] != new[2]:
            compare = svg_difference if old[1] == "svg+xml" else png_difference
            reason = compare(old[2], new[2])
            found += [f"figure {position} (cell {old[0]}): {reason}"] if reason else []
    return found
