"""Tables with a caption, headers that screen readers can follow, and rounded numbers."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from adaptive_dp.plots.numbers import format_number


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """A table whose first column names its rows; cells are text already.

    Parameters
    ----------
    caption : str
        What the table shows.
    header : tuple of str
        Names of the columns.
    rows : tuple of tuple of str
        Cells, one per column.
    numeric : tuple of bool
        Which columns hold numbers and are set flush right.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]

    def _repr_html_(self) -> str:
        head = "".join(
            f'<th scope="col"{_align(number)}>{html.escape(cell)}</th>'
            for cell, number in zip(self.header, self.numeric, strict=True)
        )
        body = "".join(f"<tr>{self._row(row)}</tr>" for row in self.rows)
        caption = html.escape(self.caption, quote=True)
        # The wrapper scrolls on a narrow screen, so it must be reachable by keyboard and have a name.
        return (
            f'<div class="table-scroll" style="overflow-x:auto" role="region" tabindex="0" aria-label="{caption}">'
            f'<table class="dataframe table"><caption>{html.escape(self.caption)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def _row(self, row: tuple[str, ...]) -> str:
        first, *rest = row
        cells = "".join(
            f"<td{_align(number)}>{html.escape(cell)}</td>"
            for cell, number in zip(rest, self.numeric[1:], strict=True)
        )
        return f'<th scope="row"{_align(self.numeric[0])}>{html.escape(first)}</th>{cells}'

    def _repr_markdown_(self) -> str:
        rule = ["--:" if number else ":--" for number in self.numeric]
        lines = [self.header, rule, *self.rows]
        return "\n".join("| " + " | ".join(_escape_markdown(cell) for cell in line) + " |" for line in lines)

    def __repr__(self) -> str:
        return f"{self.caption}\n{self._repr_markdown_()}"


def table(
    frame: pd.DataFrame,
    *,
    caption: str,
    digits: int | Mapping[str, int] = 3,
    headers: Mapping[str, str] | None = None,
) -> Table:
    """Lay out a frame as a table; the first column names the rows, the index is not shown.

    Parameters
    ----------
    frame : pandas.DataFrame
        At least one row and two columns of numbers, truth values or text.
    caption : str
        What the table shows, at least two words.
    digits : int or mapping
        Significant digits of floats, 1 to 6; a mapping gives them by column (3 elsewhere).
    headers : mapping, optional
        Column names as the reader shall see them.

    Returns
    -------
    Table

    Raises
    ------
    ValueError
        If the caption is empty, the frame too small, or a name in ``digits`` or ``headers`` is no column.
    """
    if len(caption.split()) < 2:
        raise ValueError(f"caption must say what the table shows, got {caption!r}")
    if not len(frame) or frame.shape[1] < 2:
        raise ValueError(f"frame must have at least one row and two columns, got shape {frame.shape}")
    headers = dict(headers or {})
    columns = [str(name) for name in frame.columns]
    precision = dict(digits) if isinstance(digits, Mapping) else dict.fromkeys(columns, digits)
    for argument, names in (("headers", headers), ("digits", precision)):
        unknown = [name for name in names if name not in columns]
        if unknown:
            raise ValueError(f"{argument} names {unknown[0]!r}, which is no column of the frame ({columns})")
    cells = [
        [format_number(value, precision.get(name, 3), pad=True) for value in frame[column].tolist()]
        for name, column in zip(columns, frame.columns, strict=True)
    ]
    return Table(
        caption=caption,
        header=tuple(headers.get(name, name) for name in columns),
        rows=tuple(zip(*cells, strict=True)),
        numeric=tuple(_is_numeric(frame[column]) for column in frame.columns),
    )


def _is_numeric(column: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column))


def _align(number: bool) -> str:
    return ' style="text-align:right"' if number else ' style="text-align:left"'


def _escape_markdown(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
