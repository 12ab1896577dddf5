"""Numbers, figures and tables on their way from a cell into the text."""

from __future__ import annotations

import sys

import myst_nb
import numpy as np
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from myst_nb.core.variables import format_plain_text

from adaptive_dp import notebook, plots


def draw(axes, theme, factor=1.0):
    axes.plot([0, 1], [0, factor], **theme.curve(0))
    axes.set(xlabel="x", ylabel="y")


ALT = "A line that rises from the lower left corner to the upper right corner."
FIGURE = plots.figure(draw, name="rising", alt=ALT)
FRAMES = plots.frames(draw, [0.5, 1.0], name="steeper", alt=ALT, label="slope")
HOVER = plots.hover(
    draw,
    pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0], "loss": [0.5, 1.0]}),
    columns=["loss"],
    name="told",
    alt=ALT,
)
TABLE = plots.table(pd.DataFrame({"method": ["a"], "loss": [0.5]}), caption="Loss by method")


@pytest.fixture
def glued(monkeypatch):
    """What reaches MyST-NB: name to (value, display)."""
    seen = {}
    monkeypatch.setattr(
        myst_nb, "glue", lambda name, value, display=True: seen.__setitem__(name, (value, display))
    )
    return seen


def test_values_are_glued_as_rounded_text_and_not_shown(glued):
    notebook.glue(loss=1 / 3, trials=48842, refused=True, method="doubling", tail=np.float64(1.7e-9))
    notebook.glue("neg-value", -0.123456, digits=2)
    assert glued == {
        "loss": ("0.333", False),
        "trials": ("48,842", False),
        "refused": ("yes", False),
        "method": ("doubling", False),
        "tail": ("1.7\u00a0×\u00a010⁻⁹", False),
        "neg-value": ("−0.12", False),
    }


def test_a_value_may_be_called_digits_or_name(glued):
    notebook.glue("digits", 3)
    notebook.glue(name=1, value=2)
    assert glued == {"digits": ("3", False), "name": ("1", False), "value": ("2", False)}


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "message"),
    [
        ((), {}, ValueError, "at least one value"),
        (("a", 1), {"a": 2}, ValueError, "'a' is given twice"),
        (("a:b", 1), {}, ValueError, "'a:b'"),
        (("a b", 1), {}, ValueError, "'a b'"),
        ((), {"a": 1.0, "digits": 7}, ValueError, "digits must be at most 6"),
        ((), {"a": [1.0]}, TypeError, "must be a number or text"),
    ],
)
def test_bad_values_are_refused(glued, arguments, keywords, error, message):
    with pytest.raises(error, match=message):
        notebook.glue(*arguments, **keywords)
    assert not glued


@pytest.mark.parametrize("text", ["0.333", "1.7\u00a0×\u00a010⁻⁹", "−0.12", "48,842", "it's", "007"])
def test_the_text_role_shows_the_text_without_quotes(text):
    """The role reads the representation that IPython stored, and formats it as a string."""
    assert format_plain_text(repr(text), "s") == text


def test_figures_and_tables_are_shown_and_glued(glued):
    notebook.glue_figure(FIGURE)
    notebook.glue_figure(FRAMES)
    notebook.glue_figure(HOVER)
    notebook.glue_table(TABLE, "losses")
    assert glued == {
        "rising": (FIGURE, True),
        "steeper": (FRAMES, True),
        "told": (HOVER, True),
        "losses": (TABLE, True),
    }


def test_only_figures_and_tables_can_be_placed(glued):
    with pytest.raises(TypeError, match="figure must be a Figure"):
        notebook.glue_figure(TABLE)
    with pytest.raises(TypeError, match="table must be a Table"):
        notebook.glue_table(FIGURE, "a")
    with pytest.raises(ValueError, match="name must be"):
        notebook.glue_table(TABLE, "Not A Name")
    assert not glued


def test_a_downloaded_notebook_shows_its_figures_and_glues_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "myst_nb", None)
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    notebook.glue(loss=1.0)
    notebook.glue_figure(FIGURE)
    notebook.glue_table(TABLE, "losses")
    assert shown == [FIGURE, TABLE]
    with pytest.raises(ValueError, match="at least one value"):
        notebook.glue()


def test_without_ipython_nothing_is_shown(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "myst_nb", None)
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    notebook.glue_figure(FIGURE)
    assert capsys.readouterr() == ("", "")


def test_outputs_are_the_ones_the_page_reads(monkeypatch):
    """The real function of MyST-NB with IPython's own formatter; only the kernel is missing."""
    outputs = {}

    def collect(data, raw, metadata):
        outputs[metadata["scrapbook"]["name"]] = data

    monkeypatch.setattr("IPython.core.formatters.format_display_data", DisplayFormatter().format)
    monkeypatch.setattr("myst_nb.ext.glue.ipy_display", collect)
    notebook.glue(loss=0.25)
    notebook.glue_figure(FIGURE)
    notebook.glue_figure(FRAMES)
    notebook.glue_figure(HOVER)
    notebook.glue_table(TABLE, "losses")
    assert outputs["loss"] == {"application/papermill.record/text/plain": "'0.25'"}
    assert outputs["rising"] == {"text/plain": f"Figure rising: {ALT}", "text/html": FIGURE._repr_html_()}
    assert set(outputs["steeper"]) == {"text/plain", "text/html"}
    assert outputs["told"] == {"text/plain": repr(HOVER), "text/html": HOVER._repr_html_()}
    assert set(outputs["losses"]) == {"text/plain", "text/html", "text/markdown"}
