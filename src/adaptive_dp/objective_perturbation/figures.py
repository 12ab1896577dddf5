"""The figures of chapter 4. Each function returns a finished figure; none of them draws random numbers.

The descriptions for readers who do not see a figure are computed from the numbers, so that they stay true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from adaptive_dp.plots import drawings
from adaptive_dp.plots.figure import Figure, figure
from adaptive_dp.plots.frames import Frames, frames
from adaptive_dp.plots.numbers import ends_in_words, format_number
from adaptive_dp.plots.theme import Theme

SMALLEST_DELTA = 1e-12


def draw_bounds(panels: Mapping[str, pd.DataFrame], *, name: str) -> Figure:
    """Figure 4.1: delta against epsilon by each analysis, from :func:`profile_tables.four_bounds`; one panel a case."""

    def draw(axes: Any, theme: Theme) -> None:
        for place, (title, frame) in zip(np.ravel(axes), panels.items(), strict=True):
            for index, (analysis, part) in enumerate(frame.groupby("analysis", sort=False)):
                shown = part[part["delta"] >= SMALLEST_DELTA]
                place.plot(shown["epsilon"], shown["delta"], label=str(analysis), **theme.curve(index))
            drawings.log_axis(place, "y")
            place.set_title(title)
            place.set_xlabel("epsilon")
            place.set_ylabel("delta")
        drawings.legend(list(np.ravel(axes)))

    def at_the_median(frame: pd.DataFrame) -> str:
        middle = float(frame["epsilon"].median())
        values = (
            f"{analysis} {format_number(float(np.interp(middle, part['epsilon'], part['delta'])), 2)}"
            for analysis, part in frame.groupby("analysis", sort=False)
        )
        return f"at epsilon {format_number(middle, 2)}: " + ", ".join(values)

    text = ". ".join(f"{title}, {at_the_median(frame)}" for title, frame in panels.items())
    return figure(
        draw,
        name=name,
        size=(6.4, 3.7),
        panels=(1, len(panels)),
        sharey=True,
        alt=f"Delta against epsilon, log scale, by several analyses of the same mechanism. {text}.",
    )


def draw_certified(frame: pd.DataFrame, *, name: str) -> Figure:
    """The certified bracket of the worst case beside the bounds, one panel a direction.

    ``frame`` has columns ``direction``, ``epsilon``, ``lower``, ``upper``, ``closed``, ``gaussian``.
    """
    directions = list(dict.fromkeys(frame["direction"]))

    def draw(axes: Any, theme: Theme) -> None:
        for place, direction in zip(np.ravel(axes), directions, strict=True):
            part = frame[frame["direction"] == direction]
            place.fill_between(
                part["epsilon"],
                part["lower"],
                part["upper"],
                color=theme.colour(0),
                alpha=0.35,
                linewidth=0,
                label="worst case, bracket",
            )
            drawings.curves(
                place,
                theme,
                part,
                "epsilon",
                {"upper": "certified", "closed": "closed form", "gaussian": "Gaussian"},
            )
            drawings.log_axis(place, "y")
            place.set_title(f"record {direction}")
            place.set_xlabel("epsilon")
            place.set_ylabel("delta")
        drawings.legend(list(np.ravel(axes)))

    text = ". ".join(
        f"record {direction}: "
        + ends_in_words(
            frame[frame["direction"] == direction],
            {"lower": "attained", "upper": "certified", "closed": "closed form"},
        )
        for direction in directions
    )
    return figure(
        draw,
        name=name,
        size=(6.4, 3.6),
        panels=(1, len(directions)),
        sharey=True,
        alt=f"Worst-case delta against epsilon, log scale, between an attained and a certified value. {text}.",
    )


def draw_shift(frame: pd.DataFrame, *, name: str) -> Figure:
    """The shift that attains the worst case: columns ``direction``, ``t``, ``s``."""

    def draw(axes: Axes, theme: Theme) -> None:
        for index, (direction, part) in enumerate(frame.groupby("direction", sort=False)):
            axes.plot(part["t"], part["s"], label=f"record {direction}", **theme.curve(index))
        axes.set_xlabel("noise along the record over sigma, t")
        axes.set_ylabel("shift s(t)")
        drawings.legend(axes)

    text = "; ".join(
        f"record {direction}: from {format_number(float(part['s'].iloc[0]), 2)} to "
        f"{format_number(float(part['s'].iloc[-1]), 2)}, falling between t = "
        f"{format_number(float(part.loc[part['s'].diff() < 0, 't'].min()), 2)} and "
        f"{format_number(float(part.loc[part['s'].diff() < 0, 't'].max()), 2)}"
        for direction, part in frame.groupby("direction", sort=False)
    )
    return figure(draw, name=name, alt=f"The worst shift against the noise along the record. {text}.")


def draw_density(
    density_at: Callable[[float], pd.DataFrame], values: Sequence[float], *, label: str, name: str
) -> Frames:
    """Privacy-loss densities with a slider; ``density_at(value)`` has ``series``, ``loss``, ``density``."""
    all_frames = {value: density_at(value) for value in values}
    reach = max(float(frame["loss"].max()) for frame in all_frames.values())
    floor = min(float(frame["loss"].min()) for frame in all_frames.values())

    def top(value: float) -> float:
        # The density of a Huber loss is infinite at its end: the others say how high the frame must be.
        frame = all_frames[value]
        return 1.25 * float(frame.loc[frame["series"] != "Huber loss", "density"].max())

    def draw(axes: Axes, theme: Theme, value: float) -> None:
        for index, (series, part) in enumerate(all_frames[value].groupby("series", sort=False)):
            axes.plot(part["loss"], part["density"], label=str(series), **theme.curve(index))
        axes.set_xlim(floor, reach)
        axes.set_ylim(0, top(value))
        axes.set_xlabel("privacy loss")
        axes.set_ylabel("density")
        drawings.legend(axes)

    def alt(value: float) -> str:
        modes = ", ".join(
            f"{series} most likely near {format_number(float(part['loss'].iloc[int(np.argmax(part['density']))]), 2)}"
            for series, part in all_frames[value].groupby("series", sort=False)
        )
        return f"Density of the privacy loss at {label} = {format_number(value)}: {modes}."

    return frames(draw, values, label=label, alt=alt, name=name, size=(5.6, 4.0))


def draw_winners(winners: pd.DataFrame, *, name: str) -> Frames:
    """Epsilon of each analysis over the Gaussian one against the noise, with a slider for kappa.

    ``winners`` as :func:`profile_tables.winners` returns it.
    """
    series = {
        "kifer": "Kifer et al.",
        "hockey-stick": "hockey stick",
        "half-normal": "Rényi",
        "reduced": "one-dimensional",
    }
    kappas = sorted(set(winners["kappa"]))
    at = {kappa: winners[winners["kappa"] == kappa].sort_values("mu") for kappa in kappas}

    def ratios(kappa: float, column: str) -> pd.DataFrame:
        part = at[kappa]
        found = pd.DataFrame({"noise": 1 / part["mu"], "ratio": part[column] / part["gaussian"]})
        finite: pd.DataFrame = found.loc[np.isfinite(found["ratio"])]
        return finite.sort_values("noise")

    def draw(axes: Axes, theme: Theme, kappa: float) -> None:
        for index, (column, text) in enumerate(series.items()):
            shown = ratios(kappa, column)
            axes.plot(shown["noise"], shown["ratio"], label=text, **theme.curve(index))
        drawings.log_axis(axes, "x")
        drawings.log_axis(axes, "y")
        axes.set_ylim(0.9, 30)
        axes.set_xlim(float(1 / winners["mu"].max()), float(1 / winners["mu"].min()))
        drawings.baseline(axes, theme, 1.0, "Gaussian mechanism")
        axes.set_xlabel("noise, sigma over the largest gradient")
        axes.set_ylabel("epsilon over that of the Gaussian")
        drawings.legend(axes)

    def alt(kappa: float) -> str:
        best = at[kappa]["best"].value_counts().to_dict()
        won = ", ".join(f"{series.get(str(key), str(key))} at {count}" for key, count in best.items())
        what = f"Epsilon of four analyses over that of the Gaussian mechanism, kappa {format_number(kappa)}"
        return f"{what}. Smallest: {won} of {len(at[kappa])} noise levels."

    return frames(draw, kappas, label="kappa", alt=alt, name=name)


def draw_renyi(
    panels: Mapping[str, pd.DataFrame],
    series: Mapping[str, str],
    *,
    name: str,
    what: str,
    per_order: bool = False,
) -> Figure:
    """Rényi divergences against the order, one panel a case; ``per_order`` divides by the order."""
    y_label = "Rényi divergence over order" if per_order else "Rényi divergence"

    def draw(axes: Any, theme: Theme) -> None:
        for place, (title, frame) in zip(np.ravel(axes), panels.items(), strict=True):
            shown = frame.copy()
            if per_order:
                shown[list(series)] = shown[list(series)].div(shown["order"], axis=0)
            drawings.curves(place, theme, shown, "order", series)
            drawings.log_axis(place, "x")
            drawings.log_axis(place, "y")
            place.set_title(title)
            place.set_xlabel("order")
            place.set_ylabel(y_label)
        drawings.legend(list(np.ravel(axes)))

    text = ". ".join(f"{title}: {ends_in_words(frame, series)}" for title, frame in panels.items())
    rows = math.ceil(len(panels) / 2)
    return figure(
        draw,
        name=name,
        size=(6.4, 3.4 * rows),
        panels=(rows, min(2, len(panels))),
        alt=f"{what}, Rényi divergence against the order, log scales, first to last order. {text}.",
    )


def draw_composition(table: pd.DataFrame, *, name: str) -> Figure:
    """Figure C.2: delta of compositions, from :func:`composition_figures.composition_table`; one panel a number."""
    series = {
        "renyi": "Rényi, thesis",
        "numerical": "numerical, thesis",
        "reduced": "numerical, by direction",
        "gaussian": "Gaussian",
    }
    rounds = list(dict.fromkeys(table["rounds"]))

    def draw(axes: Any, theme: Theme) -> None:
        for place, count in zip(np.ravel(axes), rounds, strict=True):
            part = table[table["rounds"] == count]
            kept = part[part["gaussian"] >= SMALLEST_DELTA]
            drawings.curves(place, theme, kept, "epsilon", series)
            drawings.log_axis(place, "y")
            place.set_title("once" if count == 1 else f"{count} times")
            place.set_xlabel("epsilon")
            place.set_ylabel("delta")
        drawings.legend(list(np.ravel(axes)))

    text = ". ".join(
        f"{count} times: {ends_in_words(table[table['rounds'] == count], series)}" for count in rounds
    )
    return figure(
        draw,
        name=name,
        size=(6.4, 3.4),
        panels=(1, len(rounds)),
        sharey=True,
        alt=f"Delta against epsilon of objective perturbation composed with itself, log scale. {text}.",
    )


def draw_loglog(
    frame: pd.DataFrame,
    *,
    name: str,
    x: str,
    by: str,
    x_label: str,
    y_label: str,
    what: str,
    y: str = "mean",
    labels: Mapping[str, str] | None = None,
    dashed: str | None = None,
) -> Figure:
    """One line with its interval for each ``by``, both axes logarithmic; ``dashed`` adds a thin line of that column."""
    names = labels or {}

    def draw(axes: Axes, theme: Theme) -> None:
        drawings.tradeoff(axes, theme, frame, x=x, y=y, by=by, labels=names)
        if dashed is not None:
            for index, (_, part) in enumerate(frame.groupby(by, sort=False)):
                axes.plot(part[x], part[dashed], color=theme.colour(index), linestyle=":", linewidth=1)
        drawings.log_axis(axes, "x")
        drawings.log_axis(axes, "y")
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        drawings.legend(axes)

    text = "; ".join(
        f"{names.get(str(key), str(key))} from {format_number(float(part[y].iloc[0]), 2)} to "
        f"{format_number(float(part[y].iloc[-1]), 2)}"
        for key, part in frame.sort_values(x).groupby(by, sort=False)
    )
    return figure(
        draw,
        name=name,
        alt=f"{what} against {x_label}, log scales, from the smallest to the largest: {text}.",
    )


def draw_dimension(table: pd.DataFrame, *, name: str) -> Figure:
    """Beyond linear models: exact delta, promise and bounds against d, from :func:`non_glm.counterexample_table`."""
    series = {
        "exact_low": "exact",
        "promised": "promised",
        "theorem": "proved here",
        "corrected": "corrected C.5.1",
    }

    def draw(axes: Axes, theme: Theme) -> None:
        drawings.curves(axes, theme, table, "dimension", series)
        drawings.log_axis(axes, "x")
        drawings.log_axis(axes, "y")
        axes.set_xlabel("dimension")
        axes.set_ylabel("delta at epsilon = 1")
        drawings.legend(axes)

    return figure(
        draw,
        name=name,
        alt="Delta of the calibration for generalised linear models, used for a separable Huber loss, against the "
        f"dimension, log scales, smallest to largest: {ends_in_words(table, series)}.",
    )


def draw_evaluations(table: pd.DataFrame) -> Figure:
    """Gradients to a small gradient against n, from :func:`optimisation_cost.evaluations_table`."""
    return draw_loglog(
        table,
        name="op-gradients",
        x="n",
        by="method",
        y="evaluations",
        dashed="bound",
        x_label="records",
        y_label="gradients of one record",
        what="Evaluations to a small gradient",
    )


def draw_rates(table: pd.DataFrame) -> Figure:
    """Excess risk against the dimension, from :func:`risk_experiment.rate_table`."""
    return draw_loglog(
        table,
        name="op-rates",
        x="dimension",
        by="choice",
        y="measured",
        dashed="bound",
        x_label="dimension",
        y_label="excess risk",
        what="Excess risk",
        labels={"right": "ridge of the right order", "printed": "printed choice"},
    )


def draw_race(panels: Mapping[str, pd.DataFrame], *, name: str, labels: Mapping[str, str]) -> Figure:
    """Figure 4.2: test accuracy against epsilon by method, one panel a data set, 95 % intervals.

    A horizontal line is the accuracy without privacy, the column ``not_private``.
    """
    across = min(2, len(panels))
    rows = math.ceil(len(panels) / across)

    def draw(axes: Any, theme: Theme) -> None:
        flat: list[Axes] = list(np.ravel(axes))
        for place, (title, frame) in zip(flat, panels.items(), strict=False):
            drawings.tradeoff(place, theme, frame, x="epsilon", by="method", labels=labels)
            drawings.log_axis(place, "x")
            drawings.baseline(place, theme, float(frame["not_private"].iloc[0]), "not private")
            low, high = place.get_ylim()
            place.set_ylim(low, high + 0.12 * (high - low))  # room for the name of the line
            place.set_title(title)
            place.set_xlabel("epsilon")
            place.set_ylabel("test accuracy")
        for spare in flat[len(panels) :]:
            spare.set_axis_off()
        drawings.legend(flat[: len(panels)])

    text = ". ".join(
        f"{title}: "
        + ", ".join(
            f"{labels.get(str(key), str(key))} from {format_number(float(part['mean'].iloc[0]), 3)} to "
            f"{format_number(float(part['mean'].iloc[-1]), 3)}"
            for key, part in frame.sort_values("epsilon").groupby("method", sort=False)
        )
        for title, frame in panels.items()
    )
    return figure(
        draw,
        name=name,
        size=(6.4 if across > 1 else 5.6, 3.3 * rows),
        panels=(rows, across),
        alt=f"Test accuracy against epsilon by method, log scale, smallest epsilon to largest. {text}.",
    )
