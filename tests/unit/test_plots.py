"""Figures: the same bytes in every run, legible on light and dark, described in words."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as Canvas
from scipy import stats

from adaptive_dp import plots
from adaptive_dp.plots import drawings
from adaptive_dp.plots.figure import compact
from adaptive_dp.plots.theme import DASHES, HATCHES, MARKERS, THEMES

ALT = "Privacy loss falls as the allowed excess risk grows; both methods agree."
FRAME = pd.DataFrame(
    {
        "alpha": [0.1, 0.01, 0.1, 0.01],
        "method": ["reduction", "reduction", "doubling", "doubling"],
        "mean": [1.0, 8.0, 2.0, 9.0],
        "low": [0.9, 7.0, 1.9, 8.0],
        "high": [1.1, 9.0, 2.1, 10.0],
    }
)


def draw(axes, theme):
    plots.tradeoff(axes, theme, FRAME, x="alpha", by="method")
    axes.set(xlabel="excess risk", ylabel="privacy loss")
    plots.log_axis(axes, "x")
    plots.legend(axes)


def figure(draw=draw, **changes):
    return plots.figure(draw, **{"alt": ALT, "name": "loss", **changes})


@pytest.fixture
def axes():
    return Canvas(figsize=(6.4, 3.8), layout="constrained").subplots()


# --- colours -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_lines_and_words_stand_out_from_the_page(theme):
    for colour in theme.colours:
        assert plots.contrast_ratio(colour, theme.background) >= 3
    for colour in (theme.text, theme.muted):
        assert plots.contrast_ratio(colour, theme.background) >= 4.5
    # The grid must not compete with the data.
    assert plots.contrast_ratio(theme.grid, theme.background) < 2


def test_contrast_ratio_has_the_values_of_the_guidelines():
    assert plots.contrast_ratio("#000000", "#ffffff") == pytest.approx(21)
    assert plots.contrast_ratio("#ffffff", "#ffffff") == pytest.approx(1)
    assert plots.contrast_ratio("#ffffff", "#777777") == pytest.approx(4.48, abs=0.005)


# Dichromacy of full severity as a matrix on linear RGB: Machado, Oliveira and Fernandes (2009), table 1.
SIGHT = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def cielab(colour, sight):
    linear = np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)])
    seen = np.clip(np.asarray(sight) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    scaled = to_xyz @ seen / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_colours_differ_for_every_common_form_of_sight(theme, sight):
    seen = [cielab(colour, SIGHT[sight]) for colour in theme.colours]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 20


def test_colour_is_never_the_only_cue():
    for cues in (MARKERS, DASHES, HATCHES):
        assert len(cues) == len(set(map(str, cues))) == len(plots.LIGHT.colours) == len(plots.DARK.colours)


def test_more_lines_than_can_be_told_apart_are_refused(axes):
    crowd = pd.DataFrame({"x": [0.0] * 7, "y": [1.0] * 7, "by": list("abcdefg")})
    with pytest.raises(ValueError, match="split the figure"):
        plots.tradeoff(axes, plots.LIGHT, crowd, x="x", y="y", by="by", low=None, high=None)


# --- figures -----------------------------------------------------------------------------------------


def test_the_bytes_depend_on_the_drawing_only():
    first = figure()
    before = dict(mpl.rcParams)
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "axes.grid": False, "svg.fonttype": "none"}):
        assert figure() == first
    assert dict(mpl.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_the_bytes_are_the_same_in_another_process():
    program = (
        "import importlib.util, hashlib; "
        f"spec = importlib.util.spec_from_file_location('t', {__file__!r}); "
        "t = importlib.util.module_from_spec(spec); spec.loader.exec_module(t); "
        "print(hashlib.sha256(t.figure()._repr_html_().encode()).hexdigest())"
    )
    other = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "12", "SOURCE_DATE_EPOCH": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == hashlib.sha256(figure()._repr_html_().encode()).hexdigest()


def test_both_renderings_are_svg_documents_in_their_own_colours():
    shown = figure()
    assert shown.svg_light != shown.svg_dark
    for svg, theme, other in (
        (shown.svg_light, plots.LIGHT, plots.DARK),
        (shown.svg_dark, plots.DARK, plots.LIGHT),
    ):
        assert ET.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
        for colour in (theme.background, theme.text, theme.colours[0], theme.colours[1]):
            assert colour in svg
        for colour in (other.background, other.text, other.colours[0]):
            assert colour not in svg
        # Letters are paths, so that the picture does not depend on the fonts of the reader.
        assert "<text" not in svg
        assert not re.search(r"<!--|<metadata|<dc:|\d{4}-\d{2}-\d{2}", svg)


def test_references_inside_an_svg_survive_compaction():
    for svg in (figure().svg_light, figure().svg_dark):
        known = set(re.findall(r' id="([^"]+)"', svg))
        used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
        assert used == known
        assert used


def test_compaction_rounds_coordinates_and_nothing_else():
    svg = '<g transform="translate(1.23456 -0.0001) scale(0.015625)" id="a"><path d="M 1.005001 -2.999 L 3e-5.5"/></g>'
    assert compact('<?xml version="1.0"?>\n<!-- x -->\n' + svg) == (
        '<g transform="translate(1.23 0) scale(0.015625)"><path d="M 1.01 -3 L 3e-5.5"/></g>\n'
    )


class Elements(HTMLParser):
    """Every start tag with its attributes, and whether all tags were closed in order."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in {"img", "input"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def test_html_holds_both_renderings_with_the_same_words():
    shown = figure(alt='Privacy loss "falls" as the allowed risk grows & both methods <agree>.')
    light, dark = Elements(shown._repr_html_()).all("img")
    assert light["alt"] == dark["alt"] == shown.alt
    for image, svg in ((light, shown.svg_light), (dark, shown.svg_dark)):
        kind, data = image["src"].split(",", 1)
        assert kind == "data:image/svg+xml;base64"
        assert base64.b64decode(data).decode("utf-8") == svg
    assert "figure-light" in light["class"].split()
    assert "display" not in light["style"]
    assert "figure-dark" in dark["class"].split()
    assert "display:none" in dark["style"]
    for name in ("img.figure-light", "img.figure-dark"):
        assert name in plots.SITE_CSS
    assert repr(shown) == f"Figure loss: {shown.alt}"


@pytest.mark.parametrize("alt", ["", "A figure.", " " * 60, "x" * 60, None])
def test_a_figure_without_a_description_is_refused(alt):
    with pytest.raises(ValueError, match="alt must say what is seen"):
        figure(alt=alt)


@pytest.mark.parametrize("name", ["", "Loss", "a b", "1a", "a_b", "a-", 'a"b'])
def test_a_name_must_be_an_identifier(name):
    with pytest.raises(ValueError, match="name must be"):
        figure(name=name)


@pytest.mark.parametrize(("labels", "missing"), [({"xlabel": "risk"}, "y"), ({"ylabel": "loss"}, "x")])
def test_an_axis_without_a_label_is_refused(labels, missing):
    def unlabelled(axes, theme):
        axes.plot([0, 1], [0, 1])
        axes.set(**{"xlabel": "  ", **labels})

    with pytest.raises(ValueError, match=f"panel 0 of the drawing has no {missing} label"):
        figure(unlabelled)


def test_every_panel_must_be_labelled_unless_it_shares_its_axes():
    def panels(axes, theme):
        for panel in axes.flat:
            panel.plot([0, 1], [0, 1])
        axes[0, 0].set(xlabel="x", ylabel="y")

    with pytest.raises(ValueError, match="panel 1 of the drawing has no x label"):
        figure(panels, panels=(1, 2))
    with pytest.raises(ValueError, match="panel 1 of the drawing has no y label"):
        figure(panels, panels=(1, 2), sharex=True)
    assert figure(panels, panels=(1, 2), sharex=True, sharey=True).svg_light


def test_panels_without_axes_and_labels_of_the_whole_figure_are_accepted():
    def panels(axes, theme):
        axes[0, 0].plot([0, 1], [0, 1])
        axes[0, 1].set_axis_off()
        axes[0, 0].figure.supxlabel("x")
        axes[0, 0].figure.supylabel("y")

    assert figure(panels, panels=(1, 2)).svg_light


def test_a_colour_bar_needs_one_label():
    def heat(axes, theme, label):
        axes.set(xlabel="x", ylabel="y")
        axes.figure.colorbar(axes.imshow(np.eye(3)), ax=axes).set_label(label)

    assert figure(lambda axes, theme: heat(axes, theme, "risk")).svg_light
    with pytest.raises(ValueError, match="panel 1"):
        figure(lambda axes, theme: heat(axes, theme, ""))


def test_an_empty_drawing_is_refused():
    with pytest.raises(ValueError, match="every panel empty"):
        figure(lambda axes, theme: axes.set(xlabel="x", ylabel="y"))


@pytest.mark.parametrize("changes", [{"size": (0, 3)}, {"panels": (0, 1)}])
def test_sizes_must_be_positive(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        figure(**changes)


# --- drawings ----------------------------------------------------------------------------------------


def test_tradeoff_draws_what_the_frame_holds(axes):
    plots.tradeoff(axes, plots.LIGHT, FRAME, x="alpha", by="method", labels={"doubling": "twice as much"})
    first, second = axes.get_lines()
    assert [first.get_label(), second.get_label()] == ["reduction", "twice as much"]
    assert first.get_xdata().tolist() == [0.01, 0.1]
    assert first.get_ydata().tolist() == [8.0, 1.0]
    assert first.get_linestyle() != second.get_linestyle()
    assert first.get_marker() != second.get_marker()
    band = axes.collections[1].get_paths()[0].get_extents()
    assert (band.ymin, band.ymax) == (1.9, 10.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": "beta"}, "no column 'beta'"),
        ({"by": "kind"}, "no column 'kind'"),
        ({"low": None}, "low and high go together"),
        ({"frame": FRAME[:0]}, "at least one row"),
    ],
)
def test_tradeoff_refuses_a_frame_that_does_not_fit(axes, changes, message):
    arguments = {"frame": FRAME, "x": "alpha", "by": "method", **changes}
    with pytest.raises(ValueError, match=message):
        plots.tradeoff(axes, plots.LIGHT, arguments.pop("frame"), **arguments)


PARTS = pd.DataFrame({"method": ["a", "b"], "noise": [1.0, 2.0], "bias": [3.0, 0.5]})


def test_stacked_parts_add_up(axes):
    plots.breakdown(axes, plots.LIGHT, PARTS, x="method", parts={"noise": "noise", "bias": "shrinkage"})
    tops = [bar.get_y() + bar.get_height() for bar in axes.patches]
    assert tops == [1.0, 2.0, 4.0, 2.5]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]
    assert axes.patches[0].get_hatch() != axes.patches[2].get_hatch()


def test_parts_beside_one_another(axes):
    plots.breakdown(axes, plots.LIGHT, PARTS.assign(n=[2, 1]), x="n", parts={"noise": "noise"}, kind="lines")
    assert axes.get_lines()[0].get_ydata().tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    ("frame", "changes", "message"),
    [
        (PARTS.assign(noise=[-1.0, 1.0]), {}, "noise must not be negative"),
        (PARTS.assign(method="a"), {}, "one row per method"),
        (PARTS, {"kind": "pie"}, "kind must be one of"),
        (PARTS, {"parts": {}}, "parts must name"),
        (PARTS, {"parts": {"x": "x"}}, "no column 'x'"),
    ],
)
def test_breakdown_refuses_what_does_not_add_up(axes, frame, changes, message):
    with pytest.raises(ValueError, match=message):
        plots.breakdown(
            axes, plots.LIGHT, frame, **{"x": "method", "parts": {"noise": "n", "bias": "b"}, **changes}
        )


def test_histogram_is_a_density_even_in_a_narrow_window(axes):
    sample = np.random.default_rng(1).laplace(size=1000)
    plots.histogram(axes, plots.LIGHT, sample, stats.laplace.pdf, bins=np.linspace(-1, 1, 11))
    heights, edges, _ = axes.patches[0].get_data()
    assert heights @ np.diff(edges) == pytest.approx(np.mean(np.abs(sample) <= 1))
    law = axes.get_lines()[0]
    assert law.get_ydata() == pytest.approx(stats.laplace.pdf(law.get_xdata()))


def test_ecdf_has_the_band_of_massart(axes):
    sample = np.random.default_rng(1).laplace(size=300)
    plots.ecdf(axes, plots.LIGHT, sample, stats.laplace.cdf, level=0.9)
    steps = axes.get_lines()[0]
    assert steps.get_xdata().tolist() == np.sort(sample).tolist()
    assert steps.get_ydata() == pytest.approx(np.arange(1, 301) / 300)
    band = axes.collections[0].get_paths()[0].get_extents()
    assert band.ymin == 0
    middle = axes.collections[0].get_paths()[0].vertices
    column = middle[middle[:, 0] == np.sort(sample)[149]][:, 1]
    assert np.ptp(column[np.isclose(np.abs(column - 0.5), np.abs(column - 0.5).max(), atol=0.005)]) == (
        pytest.approx(2 * np.sqrt(np.log(20) / 600), abs=0.005)
    )


@pytest.mark.parametrize(("count", "images"), [(100, 0), (5000, 1)])
def test_dense_clouds_are_stored_as_pixels(count, images):
    points = np.random.default_rng(1).normal(size=(2, count))

    def cloud(axes, theme):
        plots.scatter(axes, theme, *points, label="records")
        axes.set(xlabel="x", ylabel="y")

    shown = figure(cloud)
    assert shown.svg_light.count("<image") == images
    assert len(shown.svg_light) < 150_000
    assert shown == figure(cloud)


def test_scatter_needs_pairs(axes):
    with pytest.raises(ValueError, match="same length, got 2 and 3"):
        plots.scatter(axes, plots.LIGHT, [1, 2], [1, 2, 3])


def test_baselines_are_named(axes):
    axes.plot([0, 1], [0, 1])
    plots.baseline(axes, plots.LIGHT, 0.5, "null baseline")
    plots.baseline(axes, plots.LIGHT, 0.2, "default", direction="x")
    level, upright = axes.get_lines()[1:]
    assert set(level.get_ydata()) == {0.5}
    assert set(upright.get_xdata()) == {0.2}
    assert [text.get_text() for text in axes.texts] == ["null baseline", "default"]
    with pytest.raises(ValueError, match="value must be finite"):
        plots.baseline(axes, plots.LIGHT, np.inf, "nowhere")


def test_one_legend_for_several_panels():
    canvas = Canvas(layout="constrained")
    panels = canvas.subplots(1, 2)
    for panel in panels:
        panel.plot([0, 1], label="both")
    panels[1].plot([1, 0], label="second")
    plots.legend(panels)
    assert [text.get_text() for text in canvas.legends[0].get_texts()] == ["both", "second"]


@pytest.mark.parametrize("function", [plots.legend, plots.direct_labels])
def test_names_need_lines(axes, function):
    with pytest.raises(ValueError, match="at least one drawn line"):
        function(axes)


def test_direct_labels_stand_apart_and_in_order(axes):
    for height, name in ((1.0, "low"), (1.001, "high"), (1.0005, "middle"), (5.0, "far")):
        axes.plot([0, 1], [0, height], label=name)
    plots.direct_labels(axes)
    heights = {text.get_text(): text.xy[1] for text in axes.texts}
    assert heights["low"] < heights["middle"] < heights["high"] < heights["far"]
    assert heights["high"] - heights["middle"] == pytest.approx(heights["middle"] - heights["low"])
    assert heights["middle"] - heights["low"] > 0.05


def test_spread_moves_no_more_than_needed():
    assert drawings.spread([0.1, 0.9], 0.2) == pytest.approx([0.1, 0.9])
    assert drawings.spread([0.5, 0.5], 0.2) == pytest.approx([0.4, 0.6])
    assert drawings.spread([0.9, 0.1, 0.12], 0.1) == pytest.approx([0.9, 0.06, 0.16])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.001, "0.001"), (0.5, "0.5"), (1, "1"), (50, "50"), (1e4, "10,000"), (1e-6, "10⁻⁶"), (2e7, "2 × 10⁷")],
)
def test_ticks_of_a_logarithmic_axis(value, text):
    assert drawings.log_tick(value) == text


@pytest.mark.parametrize(("high", "fewest"), [(40.0, 3), (1e6, 3), (1e14, 3)])
def test_a_logarithmic_axis_has_a_few_labelled_ticks(axes, high, fewest):
    axes.plot([1, 2], [1, high])
    plots.log_axis(axes, "y")
    low, top = axes.get_ylim()
    ticks = [tick for tick in axes.get_yticks() if low <= tick <= top]
    assert fewest <= len(ticks) <= 9
    assert axes.get_yscale() == "log"
    assert axes.get_xscale() == "linear"


# --- sliders -----------------------------------------------------------------------------------------


def draw_frame(axes, theme, epsilon):
    x = np.linspace(-4, 5, 181)
    axes.plot(x, stats.laplace.pdf(x, scale=1 / epsilon), **theme.curve(0))
    axes.plot(x, stats.laplace.pdf(x, loc=1, scale=1 / epsilon), **theme.curve(1))
    axes.set(xlabel="output", ylabel="density", ylim=(0, 2))


@functools.cache
def slider(count=3, **changes):
    arguments = {
        "label": "epsilon",
        "alt": "Two Laplace densities, one unit apart, at epsilon {value}.",
        "name": "laplace",
        **changes,
    }
    return plots.frames(draw_frame, np.linspace(0.5, 4, count).tolist(), **arguments)


def test_a_dozen_frames_weigh_less_than_300_kilobytes():
    shown = slider(12)
    assert len(shown._repr_html_().encode("utf-8")) < 300_000
    assert len({light for light, _ in shown.pictures}) == 12
    # A frame does not depend on those beside it.
    assert shown.pictures[0] == slider().pictures[0]


def test_the_script_holds_every_frame_of_both_themes():
    shown = slider(alt=lambda value: f"Two densities </script> one unit apart at epsilon {value:g}.")
    script = re.search(r"<script>(.*?)</script>", shown._repr_html_(), re.DOTALL)[1]
    arguments = script[script.rindex("})(") + 3 : script.rindex(");")]
    parts, frames = json.loads("[" + arguments.replace("\\x3c", "<") + "]")
    assert [frame["text"] for frame in frames] == ["0.5", "2.25", "4"]
    assert [frame["alt"] for frame in frames] == list(shown.alts)
    for frame, (light, dark) in zip(frames, shown.pictures, strict=True):
        assert "".join(parts[number] for number in frame["svg"][0]) == light
        assert "".join(parts[number] for number in frame["svg"][1]) == dark


def test_the_slider_is_labelled_and_inert_without_script():
    shown = slider()
    elements = Elements(shown._repr_html_())
    (control,) = elements.all("input")
    (label,) = elements.all("label")
    assert label["for"] == control["id"] == "frames-laplace"
    assert (control["type"], control["min"], control["max"]) == ("range", "0", "2")
    assert control["aria-valuetext"] == "0.5"
    assert any("data-controls" in div and "hidden" in div for div in elements.all("div"))
    light, dark = elements.all("img")
    assert light["alt"] == dark["alt"] == "Two Laplace densities, one unit apart, at epsilon 0.5."
    assert base64.b64decode(light["src"].split(",")[1]).decode("utf-8") == shown.pictures[0][0]
    assert not re.search(r'(?:src|href)="(?:https?:)?//', shown._repr_html_())
    assert repr(shown).startswith("Frames laplace: epsilon from 0.5 to 4.")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 1}, "at least two frames"),
        ({"label": " "}, "label must say"),
        ({"alt": "Densities."}, "alt must say"),
        ({"name": "A B"}, "name must be"),
    ],
)
def test_bad_sliders_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        slider(**changes)


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser")
def test_the_slider_moves_in_a_browser(tmp_path):
    shown = slider()
    page = tmp_path / "page.html"
    move = (
        "<script>document.querySelectorAll('input').forEach(function (s) "
        "{ s.value = 2; s.dispatchEvent(new Event('input')); });</script>"
    )
    # The same output twice, as a notebook with two views of one cell has it.
    page.write_text(
        "<!doctype html><meta charset=utf-8>" + shown._repr_html_() + shown._repr_html_() + move, "utf-8"
    )
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom",
        page.as_uri(),
    ]
    dom = subprocess.run(command, capture_output=True, timeout=50, check=True).stdout.decode("utf-8")
    images = re.findall(r'<img class="figure-(light|dark)[^>]*alt="([^"]*)" src="([^"]*)"', dom)
    assert [kind for kind, _, _ in images] == ["light", "dark"] * 2
    for kind, alt, source in images:
        assert alt == shown.alts[2]
        svg = shown.pictures[2][kind == "dark"]
        assert html.unescape(source) == "data:image/svg+xml," + quote_as_a_browser(svg)
    assert re.findall(r"<output[^>]*>([^<]*)", dom) == ["4", "4"]
    assert dom.count('aria-valuetext="4"') == 2
    assert not re.search(r"<div data-controls[^>]*hidden", dom)


def quote_as_a_browser(text):
    """``encodeURIComponent``."""
    from urllib.parse import quote

    return quote(text, safe="!~*'()")


# --- points that tell their values --------------------------------------------------------------------

CLOUD = pd.DataFrame(
    {
        "x": [0.1, 0.9, 0.1, 0.9, 0.5],
        "y": [1.0, 1.0, 100.0, 100.0, 10.0],
        "leverage": [0.5, 1e-9, -0.25, np.nan, 48_842.0],
        "side": ["</script>", "a & <b>", '"', "\\", "'"],
    },
    index=[3, 17, 4, 8, 12],
)


def draw_cloud(axes, theme, shift=0.0):
    axes.scatter(CLOUD["x"] + shift, CLOUD["y"], color=theme.colour(0), linewidths=0)
    axes.set(xlabel="x", ylabel="y", xlim=(0, 1.2), yscale="log", ylim=(1, 200))


def cloud(points=CLOUD, draw=draw_cloud, **changes):
    arguments = {"columns": {"leverage": "leverage", "side": "side <i>"}, "point": "person", **changes}
    return plots.hover(draw, points, **{"name": "cloud", "alt": ALT, **arguments})


def moved(shift):
    return CLOUD.assign(x=CLOUD["x"] + shift, leverage=CLOUD["leverage"] + shift)


@functools.cache
def moving_cloud(**changes):
    arguments = {
        "values": (0.0, 0.2, 0.2),
        "columns": ("leverage",),
        "label": "shift",
        "alt": "A cloud of five points that the slider moves by {value} to the right.",
        "name": "moving",
        "point": "person",
        **changes,
    }
    return plots.hover_frames(draw_cloud, arguments.pop("points", moved), **arguments)


def drawn_places(svg):
    """Where the markers of the first colour stand, in percent of the picture."""
    width, height = (float(size) for size in re.search(r'viewBox="0 0 (\S+) (\S+)"', svg).groups())
    marks = re.findall(rf'<use [^>]*x="(\S+)" y="(\S+)" style="fill: {plots.LIGHT.colours[0]}"', svg)
    return [
        100 * float(value) / side for mark in marks for value, side in zip(mark, (width, height), strict=True)
    ]


def script_data(text):
    """What the last script of a page was given."""
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)[-1]
    return json.loads(script[script.rindex("})(") + 3 : script.rindex(");")].replace("\\x3c", "<"))


def test_the_ring_stands_where_the_picture_has_its_point():
    shown = cloud()
    (places,) = shown.places
    assert len(places) == 2 * len(CLOUD)
    # Both are rounded: the picture to 1/100 of a point, the places to 1/100 of a percent.
    assert places == pytest.approx(drawn_places(shown.base.svg_light), abs=0.012)
    assert 0 < min(places) < max(places) < 100
    # From the upper left corner: the second point is right of the first, the third above it.
    assert places[2] > places[0]
    assert places[5] < places[1]


def test_the_ring_follows_an_axes_of_fixed_aspect():
    def square(axes, theme):
        axes.scatter(CLOUD["x"], CLOUD["x"], color=theme.colour(0), linewidths=0)
        axes.set(xlabel="x", ylabel="y", aspect="equal", xlim=(0, 1), ylim=(0, 1))

    shown = cloud(CLOUD.assign(y=CLOUD["x"]), square, size=(5.0, 2.0))
    assert shown.places[0] == pytest.approx(drawn_places(shown.base.svg_light), abs=0.02)


def test_the_picture_is_the_one_of_a_figure():
    shown = cloud()
    assert shown.base == figure(draw_cloud, name="cloud")
    assert shown.base._repr_html_() in shown._repr_html_()
    assert (shown.name, shown.alt) == ("cloud", ALT)
    assert repr(shown) == f"Hover cloud: {ALT} (5 points with leverage, side <i>)"


def test_values_are_rounded_texts_and_cannot_end_the_script():
    text = cloud()._repr_html_()
    assert text.count("</script") == 1
    assert script_data(text) == {
        "headings": ["person 3", "person 17", "person 4", "person 8", "person 12"],
        "names": ["leverage", "side <i>"],
        "places": [list(cloud().places[0])],
        "frames": [
            [
                0,
                [
                    ["0.5", "</script>"],
                    ["1\u00a0×\u00a010⁻⁹", "a & <b>"],
                    ["−0.25", '"'],
                    ["–", "\\"],
                    ["48,800", "'"],
                ],
            ]
        ],
    }
    assert cloud(digits=5).texts[0][4][0] == "48,842"
    assert cloud(columns=["side"], point="").headings[1] == "17"


def test_points_are_within_reach_of_keys_and_voice_and_inert_without_script():
    text = cloud()._repr_html_()
    elements = Elements(text)
    divs = elements.all("div")
    (keys,) = [div for div in divs if "data-keys" in div]
    assert (keys["role"], keys["tabindex"]) == ("application", "0")
    assert keys["aria-label"] == "5 points with values. Move with the arrow keys."
    assert keys["data-lm-suppress-shortcuts"] == "true"
    assert [div["aria-live"] for div in divs if "data-spoken" in div] == ["polite"]
    assert [div["aria-hidden"] for div in divs if "data-ring" in div or "data-panel" in div] == ["true"] * 2
    for part in ("keys", "ring", "panel", "help"):
        assert [("hidden" in div, "display" in div["style"]) for div in divs if f"data-{part}" in div] == [
            (True, False)
        ]
    # The output may stand twice on a page.
    assert not re.search(r'\sid="', text)
    assert not re.search(r'(?:src|href)="(?:https?:)?//', text)


def test_two_hundred_points_are_light_and_the_bytes_are_the_same():
    people = pd.DataFrame(np.random.default_rng(1).uniform(size=(200, 6)), columns=list("xyabcd"))

    def crowd(axes, theme):
        plots.scatter(axes, theme, people["x"], people["y"])
        axes.set(xlabel="x", ylabel="y")

    first, second = (cloud(people, crowd, columns=list("abcd")) for _ in range(2))
    assert first == second
    text = first._repr_html_()
    assert text == second._repr_html_()
    assert len(text.encode("utf-8")) - len(first.base._repr_html_().encode("utf-8")) < 30_000


def test_each_frame_has_places_and_values_of_its_own():
    shown = moving_cloud()
    plain = plots.frames(
        draw_cloud, (0.0, 0.2, 0.2), label="shift", name="moving", alt=shown.alt.replace(" 0 ", " {value} ")
    )
    assert shown.base == plain
    for place, (light, _) in zip(shown.places, plain.pictures, strict=True):
        assert place == pytest.approx(drawn_places(light), abs=0.012)
    data = script_data(shown._repr_html_())
    # Places that stay the same are written once.
    assert data["places"] == [list(shown.places[0]), list(shown.places[1])]
    assert [frame[0] for frame in data["frames"]] == [0, 1, 1]
    assert [frame[1][0] for frame in data["frames"]] == [["0.5"], ["0.7"], ["0.7"]]
    Elements(shown._repr_html_())


def test_frames_may_be_described_and_named_by_their_value():
    shown = moving_cloud(
        alt=lambda shift: f"A cloud of five points that the slider moves by {100 * shift:g} %.",
        text=lambda shift: f"{100 * shift:g} %",
    )
    assert shown.base.texts == ("0 %", "20 %", "20 %")
    assert shown.base.alts[1] == "A cloud of five points that the slider moves by 20 %."


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"points": CLOUD.to_numpy()}, TypeError, "points must be a pandas.DataFrame, got ndarray"),
        ({"points": CLOUD[:0]}, ValueError, "points must have at least one row"),
        ({"columns": ["weight"]}, ValueError, "points has no column 'weight'"),
        ({"x": "z"}, ValueError, "points has no column 'z'"),
        ({"columns": []}, ValueError, "columns must name at least one"),
        ({"columns": "side"}, TypeError, "columns must be a list of columns, got the text 'side'"),
        ({"points": CLOUD.assign(x=np.nan)}, ValueError, r"points\['x'\] must be finite, got .*nan"),
        ({"y": "side"}, TypeError, r"points\['side'\] must be numeric"),
        ({"points": CLOUD.assign(x=1.3)}, ValueError, r"inside the axes, got \(1.3, 1\) at 3"),
        ({"points": CLOUD.assign(y=-1.0)}, ValueError, r"inside the axes, got \(0.1, -1\) at 3"),
        ({"points": CLOUD.set_axis([1, 2, 3, 2, 4])}, ValueError, "index without repetition, got 2 twice"),
        ({"points": CLOUD.assign(side=[[1]] * 5)}, TypeError, "must be a number or text, got list"),
        ({"digits": 7}, ValueError, "digits must be at most 6"),
        ({"alt": "Points."}, ValueError, "alt must say"),
        ({"name": "A B"}, ValueError, "name must be"),
    ],
)
def test_bad_points_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        cloud(**changes)


def test_bad_frames_of_points_are_refused():
    with pytest.raises(ValueError, match=r"same index in all frames, it differs at 0\.2"):
        moving_cloud(points=lambda shift: moved(shift) if shift == 0 else moved(shift)[::-1])
    with pytest.raises(ValueError, match="at least two frames"):
        moving_cloud(values=(0.0,))


ACT = """
window.addEventListener("load", function () {
  var log = [];
  function note(root) {
    var panel = root.querySelector("[data-panel]"), ring = root.querySelector("[data-ring]");
    var stage = root.querySelector("[data-stage]").getBoundingClientRect(), box = panel.getBoundingClientRect();
    var image = root.querySelector("img").getBoundingClientRect(), dot = ring.getBoundingClientRect();
    log.push({
      text: panel.hidden ? "" : Array.from(panel.children, function (line) {
        return Array.from(line.children, function (part) { return part.textContent; }).join("=");
      }).join("|"),
      spoken: root.querySelector("[data-spoken]").textContent,
      inside: box.left >= stage.left && box.right <= stage.right + 1 && box.top >= stage.top &&
        box.bottom <= stage.bottom + 1,
      covers: box.left < dot.right && box.right > dot.left && box.top < dot.bottom && box.bottom > dot.top,
      ring: [100 * ((dot.left + dot.right) / 2 - image.left) / image.width,
             100 * ((dot.top + dot.bottom) / 2 - image.top) / image.height]
    });
  }
  function point(root, kind, at, type) {
    var image = root.querySelector("img"), box = image.getBoundingClientRect();
    image.dispatchEvent(new PointerEvent(kind, {bubbles: true, pointerType: type || "mouse",
      clientX: box.left + box.width * at[0] / 100 + 5, clientY: box.top + box.height * at[1] / 100 - 5}));
    note(root);
  }
  function press(root, key) {
    root.querySelector("[data-keys]").dispatchEvent(new KeyboardEvent("keydown", {key: key, bubbles: true}));
    note(root);
  }
  STEPS
  document.body.dataset.log = JSON.stringify(log);
  document.body.dataset.focus = String(document.activeElement.hasAttribute("data-keys"));
});
"""


def browse(tmp_path, body, steps):
    """Log of a page on which the steps were taken, and its document."""
    page = tmp_path / "page.html"
    script = f"<script>{ACT.replace('STEPS', steps)}</script>"
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{body}{script}</body>", "utf-8")
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom",
        page.as_uri(),
    ]
    dom = subprocess.run(command, capture_output=True, timeout=50, check=True).stdout.decode("utf-8")
    log = json.loads(html.unescape(re.search(r'data-log="([^"]*)"', dom)[1]))
    return log, dom


@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser")
def test_points_answer_to_pointer_and_keys_in_a_browser(tmp_path):
    shown = cloud()
    places = [list(shown.places[0][2 * point : 2 * point + 2]) for point in range(5)]
    steps = f"""
      var roots = document.querySelectorAll('[data-hover="cloud"]'), first = roots[0], second = roots[1];
      var places = {json.dumps(places)};
      places.forEach(function (at) {{ point(second, "pointermove", at); }});
      point(second, "pointermove", [50, 90]);
      point(first, "pointermove", places[0], "touch");
      point(first, "click", places[0], "touch");
      point(first, "pointermove", places[1]);
      point(first, "pointermove", [50, 90]);
      ["ArrowRight", "ArrowLeft", "ArrowLeft", "End", "ArrowDown", "a", "PageUp", "Escape", "ArrowUp"].forEach(
        function (key) {{ press(first, key); }});
      point(first, "click", [50, 90]);
    """
    log, dom = browse(tmp_path, 2 * shown._repr_html_(), steps)
    panels = [
        f"{heading}|leverage={leverage}|side <i>={side}"
        for heading, (leverage, side) in zip(shown.headings, shown.texts[0], strict=True)
    ]
    expected = [*range(5), None, None, 0, 1, 0, 1, 0, 0, 4, 4, 4, 0, None, 4, None]
    assert [entry["text"] for entry in log] == ["" if at is None else panels[at] for at in expected]
    for at, entry in zip(expected, log, strict=True):
        if at is not None:
            assert entry["ring"] == pytest.approx(places[at], abs=0.3), "a pixel and a half"
            assert entry["inside"]
            assert not entry["covers"]
    # The pointer's way is silent, a tap and a key are not.
    assert {entry["spoken"] for entry in log[:7]} == {""}
    assert log[7]["spoken"] == log[8]["spoken"] == "person 3: leverage 0.5, side <i> </script>"
    assert log[10]["spoken"].startswith("person 17: leverage 1\u00a0×")
    assert log[-1]["spoken"] == ""
    assert 'data-focus="true"' in dom
    assert not re.search(r"<div data-(?:keys|help)[^>]*hidden", dom)


@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser")
def test_a_chosen_point_stays_while_the_slider_moves_in_a_browser(tmp_path):
    shown = moving_cloud()
    steps = f"""
      var root = document.querySelector('[data-hover="moving"]'), slider = root.querySelector("input");
      point(root, "click", {json.dumps(list(shown.places[0][2:4]))});
      slider.value = 1;
      slider.dispatchEvent(new Event("input", {{bubbles: true}}));
      note(root);
    """
    log, _ = browse(tmp_path, shown._repr_html_(), steps)
    assert [entry["text"] for entry in log] == [
        "person 17|leverage=1\u00a0×\u00a010⁻⁹",
        "person 17|leverage=0.2",
    ]
    for entry, places in zip(log, shown.places, strict=False):
        assert entry["ring"] == pytest.approx(places[2:4], abs=0.3)
    assert log[1]["spoken"] == "person 17: leverage 0.2"


# --- tables and numbers ------------------------------------------------------------------------------

ROWS = pd.DataFrame(
    {"method": ["a|b", "<c>"], "loss": [0.5, 1.23456e-9], "count": [10, 20000], "refused": [True, False]}
)


def table(frame=ROWS, **changes):
    return plots.table(frame, **{"caption": "Loss by method", **changes})


def test_table_headers_say_what_they_head():
    text = table(headers={"loss": "privacy loss"}, digits={"loss": 2})._repr_html_()
    elements = Elements(text)
    assert [cell["scope"] for cell in elements.all("th")] == ["col"] * 4 + ["row"] * 2
    assert "<caption>Loss by method</caption>" in text
    assert '<th scope="row" style="text-align:left">&lt;c&gt;</th>' in text
    assert '<td style="text-align:right">1.2\u00a0×\u00a010⁻⁹</td>' in text
    assert '<td style="text-align:right">0.50</td>' in text
    assert '<td style="text-align:right">20,000</td>' in text
    assert '<td style="text-align:left">yes</td>' in text
    assert "<style" not in text
    assert "color" not in text  # the colours are those of the page, light or dark
    region = elements.all("div")[0]
    assert (region["role"], region["tabindex"], region["aria-label"]) == ("region", "0", "Loss by method")


def test_table_as_markdown():
    assert table()._repr_markdown_().splitlines() == [
        "| method | loss | count | refused |",
        "| :-- | --: | --: | :-- |",
        "| a\\|b | 0.500 | 10 | yes |",
        "| <c> | 1.23\u00a0×\u00a010⁻⁹ | 20,000 | no |",
    ]
    assert repr(table()) == "Loss by method\n" + table()._repr_markdown_()


@pytest.mark.parametrize(
    ("frame", "changes", "message"),
    [
        (ROWS, {"caption": ""}, "caption must say"),
        (ROWS[:0], {}, "at least one row"),
        (ROWS[["loss"]], {}, "two columns"),
        (ROWS, {"headers": {"x": "y"}}, "headers names 'x'"),
        (ROWS, {"digits": {"x": 2}}, "digits names 'x'"),
        (ROWS, {"digits": 7}, "digits must be at most 6"),
    ],
)
def test_bad_tables_are_refused(frame, changes, message):
    with pytest.raises(ValueError, match=message):
        table(frame, **changes)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1 / 3, 3, "0.333"),
        (0.5, 3, "0.5"),
        (-0.5, 3, "−0.5"),
        (0.0, 3, "0"),
        (0.9996, 3, "1"),
        (99.96, 3, "100"),
        (12345.6, 3, "12,300"),
        (9999.9, 3, "10,000"),
        (1234.5, 6, "1234.5"),
        (123456.7, 6, "123,457"),
        (1.7e-9, 2, "1.7\u00a0×\u00a010⁻⁹"),
        (-2e-12, 3, "−2\u00a0×\u00a010⁻¹²"),
        (3.14e20, 3, "3.14\u00a0×\u00a010²⁰"),
        (0.00099999, 3, "0.001"),
        (float("inf"), 3, "∞"),
        (float("-inf"), 3, "−∞"),
        (float("nan"), 3, "–"),
        (48842, 3, "48,842"),
        (9999, 3, "9999"),
        (-7, 3, "−7"),
        (True, 3, "yes"),
        (np.bool_(False), 3, "no"),
        (np.float64(0.25), 1, "0.2"),
        (np.int64(80), 1, "80"),
        ("noise-reduction", 3, "noise-reduction"),
    ],
)
def test_numbers_as_a_reader_sees_them(value, digits, text):
    assert plots.format_number(value, digits) == text


def test_padded_numbers_keep_their_digits():
    assert plots.format_number(0.5, 3, pad=True) == "0.500"
    assert plots.format_number(2e-9, 3, pad=True) == "2.00\u00a0×\u00a010⁻⁹"
    assert plots.format_number(12.0, 2, pad=True) == "12"


@pytest.mark.parametrize(
    ("value", "digits", "error"),
    [([1], 3, TypeError), (1.0, 0, ValueError), (1.0, 7, ValueError), (1j, 3, TypeError)],
)
def test_numbers_that_cannot_be_shown_are_refused(value, digits, error):
    with pytest.raises(error):
        plots.format_number(value, digits)
