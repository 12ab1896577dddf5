r"""Placing the numbers, figures and tables of a notebook in its text.

Every number in prose comes from a cell, every figure has a number and a caption. The patterns, as
they stand in a chapter (checked with MyST-NB 1.4 under ``jupyter-book build -W -n`` and with nbval):

**Numbers.** A code cell glues, any text cell of the page names. No format after the name: the text is
rounded already.

.. code-block:: python

    notebook.glue(loss=result.mean, trials=400)      # three significant digits
    notebook.glue("tail", 1.7e-9, digits=2)          # shown as 1.7 × 10⁻⁹

.. code-block:: text

    The loss is {glue:text}`loss` in {glue:text}`trials` trials.

From another page the file name comes first and the format must be spelt out, ``:s``:

.. code-block:: text

    {glue:text}`accuracy_first.ipynb::loss:s`

**A figure or a slider.** The cell carries the tag ``remove-output``: in Jupyter the reader sees the
figure under the cell, in the book it stands once, where the directive puts it.

.. code-block:: python

    notebook.glue_figure(plots.figure(draw, name="loss-by-accuracy", alt="..."))     # or plots.frames, plots.hover

.. code-block:: text

    ```{glue:figure} loss-by-accuracy
    :name: fig-loss-by-accuracy

    Caption, with *markup*, $\epsilon$ and {glue:text}`loss`.
    ```

    {numref}`fig-loss-by-accuracy` shows ...

**A table with a number.** Same tag; the page lays out the rows itself, below a caption of its own.

.. code-block:: python

    notebook.glue_table(plots.table(frame, caption="..."), "methods")

.. code-block:: text

    ````{table} Caption, with $\epsilon$.
    :name: tbl-methods

    ```{glue:md} methods
    :format: gfm
    ```
    ````

A table without a number needs none of this: leave ``plots.table(...)`` as the last line of a cell.

The site needs ``numfig: true``, and the rules ``plots.SITE_CSS`` in a style sheet named in
``html_css_files``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from adaptive_dp.plots.figure import Figure, check_name
from adaptive_dp.plots.frames import Frames
from adaptive_dp.plots.hover import Hover
from adaptive_dp.plots.numbers import format_number
from adaptive_dp.plots.table import Table

__all__ = ["format_number", "glue", "glue_figure", "glue_table"]


def glue(name: str | None = None, value: object = None, /, *, digits: int = 3, **values: object) -> None:
    """Make values available to the text of the page, rounded to text first so that nothing drifts.

    Without MyST-NB (a downloaded notebook) this does nothing.

    Parameters
    ----------
    name, value : str, object
        One value under a name of its own, which may hold hyphens.
    digits : int, default 3
        Significant digits of floats, 1 to 6.
    **values : object
        Further values by keyword.

    Raises
    ------
    ValueError
        If there is nothing to glue, a name is given twice, or ``digits`` is out of range.
    TypeError
        If a value is neither a number nor text.
    """
    if name is not None:
        if name in values:
            raise ValueError(f"name {name!r} is given twice")
        values = {name: value, **values}
    if not values:
        raise ValueError("glue needs at least one value")
    for key in values:
        # A colon would be read as a format, two of them as another page.
        if not key.replace("-", "_").isidentifier():
            raise ValueError(f"name must be letters, digits, hyphens and underscores, got {key!r}")
    texts = {key: format_number(item, digits) for key, item in values.items()}
    store = _myst_nb_glue()
    if store is not None:
        for key, text in texts.items():
            store(key, text, display=False)


def glue_figure(figure: Figure | Frames | Hover) -> None:
    """Show a figure, with or without a slider or values, under its cell and make it available under its own name.

    Without MyST-NB it is shown and no more.

    Raises
    ------
    TypeError
        If ``figure`` is no `plots.Figure`, `plots.Frames` or `plots.Hover`.
    """
    if not isinstance(figure, Figure | Frames | Hover):
        raise TypeError(f"figure must be a Figure, Frames or Hover, got {type(figure).__name__}: {figure!r}")
    _show_and_glue(figure.name, figure)


def glue_table(table: Table, name: str) -> None:
    """Show a table under its cell and make it available to the page under ``name``.

    Without MyST-NB it is shown and no more.

    Raises
    ------
    TypeError
        If ``table`` is no `plots.Table`.
    ValueError
        If the name is not made of lower-case words joined by hyphens.
    """
    if not isinstance(table, Table):
        raise TypeError(f"table must be a Table, got {type(table).__name__}: {table!r}")
    _show_and_glue(check_name(name), table)


def _show_and_glue(name: str, item: Figure | Frames | Hover | Table) -> None:
    store = _myst_nb_glue()
    if store is not None:
        store(name, item, display=True)
        return
    try:
        display = importlib.import_module("IPython.display").display
    except ImportError:
        return  # neither in a notebook nor in the book
    display(item)


def _myst_nb_glue() -> Callable[..., None] | None:
    """The function of MyST-NB, or ``None`` where a notebook was downloaded without the book's tools."""
    try:
        module = importlib.import_module("myst_nb")
    except ImportError:
        return None
    function: Callable[..., None] = module.glue
    return function
