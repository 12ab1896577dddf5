"""The figures of chapter 1. Each function returns a finished figure; none of them draws random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from adaptive_dp.accuracy_first.above_threshold import accuracy_margin, false_acceptance_probability
from adaptive_dp.accuracy_first.brownian import BrownianBoundary
from adaptive_dp.accuracy_first.ex_post import (
    ask_until_yes_loss,
    ask_until_yes_probability,
    worst_case_growth,
    worst_case_search_loss,
)
from adaptive_dp.accuracy_first.levels import PrivacyLevels
from adaptive_dp.accuracy_first.noise_reduction import NoisePath
from adaptive_dp.plots import drawings
from adaptive_dp.plots.figure import Figure, figure
from adaptive_dp.plots.frames import Frames, frames
from adaptive_dp.plots.theme import Theme
from adaptive_dp.validation import FloatArray

Panels = np.ndarray[Any, np.dtype[np.object_]]


def attacker_error(levels: PrivacyLevels, *, sensitivity: float = 1.0) -> pd.DataFrame:
    """What an attacker learns from the first t + 1 releases of one number, for fresh and for correlated noise.

    Fresh Laplace noise at each level: the inverse-variance weighted mean has standard deviation
    sensitivity sqrt(2 / sum of epsilon_i^2). NoiseReduction: the last release says everything the earlier ones
    say, so the deviation is sensitivity sqrt(2) / epsilon_t.

    Returns
    -------
    DataFrame
        Columns ``epsilon`` (of the last release), ``fresh`` and ``correlated`` (standard deviations) and
        ``composed`` (sum of the epsilons), one row a level.
    """
    epsilon = levels.at(np.arange(len(levels)))
    return pd.DataFrame(
        {
            "epsilon": epsilon,
            "fresh": sensitivity * np.sqrt(2 / np.cumsum(epsilon**2)),
            "correlated": sensitivity * math.sqrt(2) / epsilon,
            "composed": np.cumsum(epsilon),
        }
    )


def draw_attack(frame: pd.DataFrame) -> Figure:
    """Attacker's error against the level reached, from :func:`attacker_error`."""

    def draw(axes: Axes, theme: Theme) -> None:
        axes.plot(frame["epsilon"], frame["fresh"], label="fresh noise each time", **theme.curve(1))
        axes.plot(frame["epsilon"], frame["correlated"], label="correlated noise", **theme.curve(0))
        drawings.log_axis(axes, "x")
        drawings.log_axis(axes, "y")
        axes.set_xlabel("privacy level of the last release, epsilon")
        axes.set_ylabel("attacker's error (std. dev.)")
        drawings.legend(axes)

    return figure(
        draw,
        name="af-attack",
        alt="Error of an attacker who combines all releases so far, against the level of the last release, on log "
        "axes: with fresh noise the error lies several times below that with correlated noise at every level.",
    )


def draw_ask_until_yes(epsilon: float, *, most: int = 12) -> Figure:
    """Law and exact ex-post loss of :func:`ask_until_yes`, with the bound of composition."""
    questions = np.arange(1, most + 1)

    def draw(axes: Panels, theme: Theme) -> None:
        left, right = axes[0]
        for bit, shift in ((0, -0.2), (1, 0.2)):
            probability = ask_until_yes_probability(questions, bit, epsilon=epsilon)
            left.bar(questions + shift, probability, width=0.4, label=f"bit = {bit}", **theme.bar(bit))
        left.set_xlabel("number of questions k")
        left.set_ylabel("probability")
        exact = ask_until_yes_loss(questions, epsilon=epsilon)
        right.plot(questions, questions * epsilon, label="composition", **theme.line(2))
        right.plot(questions, exact, label="exact loss", **theme.line(3))
        right.set_xlabel("number of questions k")
        right.set_ylabel("ex-post loss")
        drawings.legend([left, right])

    return figure(
        draw,
        name="af-ex-post",
        panels=(1, 2),
        alt="Left: the probability of stopping after k questions falls geometrically, faster for bit one. Right: the "
        "exact ex-post loss is a straight line of slope epsilon from its zero at k = 2, below the line of composition.",
    )


def rewind_frames(path: NoisePath, truth: FloatArray, levels: Sequence[int]) -> Frames:
    """Slide from the most private release of a point in the plane to the least private one."""
    points = np.array([path.at(level) for level in levels])
    reach = 1.15 * np.abs(points - truth).max()

    def draw(axes: Axes, theme: Theme, position: int) -> None:
        seen = points[: position + 1]
        axes.plot(seen[:, 0], seen[:, 1], **{**theme.line(0), "alpha": 0.65})
        axes.plot(*seen[-1], color=theme.colour(1), marker="s", linestyle="", label="latest release")
        axes.plot(*truth, color=theme.text, marker="*", markersize=13, linestyle="", label="exact value")
        scale = path.sensitivity / path.epsilons[levels[position]]
        half = scale * math.log(20)
        box = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]]) * half + truth
        axes.plot(box[:, 0], box[:, 1], color=theme.muted, linestyle="dashed", linewidth=1)
        for set_limits, centre in ((axes.set_xlim, truth[0]), (axes.set_ylim, truth[1])):
            set_limits(centre - reach, centre + reach)
        axes.set_xlabel("first coordinate")
        axes.set_ylabel("second coordinate")
        axes.legend(loc="upper left", fontsize=9)

    return frames(
        draw,
        list(range(len(levels))),
        label="privacy level",
        name="af-rewind",
        size=(4.6, 4.0),
        text=lambda position: f"epsilon = {path.epsilons[levels[position]]:.3g}",
        alt="Releases of a point in the plane up to {value}: the trail moves in jumps along one axis at a time towards "
        "the exact value, and the box that holds a coordinate with probability 95 per cent shrinks.",
    )


def spending(levels: PrivacyLevels, test: float, steps: Sequence[int]) -> pd.DataFrame:
    """Loss after t + 1 tests: above-threshold with noise reduction, and with every step composed.

    ``test`` is the budget of InteractiveAboveThreshold. In the composed search each step pays for a fresh
    hypothesis and a fresh test as private as one of its noisy comparisons (Laplace scale 4 Delta/``test``).
    """
    index = np.asarray(steps)
    every = levels.at(np.arange(len(levels)))
    return pd.DataFrame(
        {
            "tests": index + 1,
            "test": np.full(index.size, test),
            "generate": every[index],
            "composed_test": (index + 1) * test / 4,
            "composed_generate": np.cumsum(every)[index],
        }
    )


def spending_frames(frame: pd.DataFrame) -> Frames:
    """Slide along a search and watch both ledgers, from :func:`spending`."""
    names = ("test", "generate"), ("composed_test", "composed_generate")
    top = 1.6 * float(frame[["composed_test", "composed_generate"]].sum(axis=1).max())

    def draw(axes: Axes, theme: Theme, position: int) -> None:
        row = frame.iloc[position]
        for part, label in enumerate(("testing", "generating")):
            heights = [float(row[name[part]]) for name in names]
            places = np.arange(2) + (part - 0.5) * 0.36
            axes.bar(places, heights, width=0.34, label=label, **theme.bar(part))
            for place, height in zip(places, heights, strict=True):
                axes.annotate(f"{height:.2g}", (place, height), ha="center", va="bottom", fontsize=10)
        drawings.log_axis(axes, "y")
        axes.set_ylim(1e-5, top)
        axes.set_xticks([0, 1], ["noise reduction", "every step composed"])
        axes.set_xlabel("search")
        axes.set_ylabel("privacy loss so far")
        axes.legend(loc="upper left", fontsize=9)

    return frames(
        draw,
        list(range(len(frame))),
        label="hypotheses tested",
        name="af-spending",
        text=lambda position: f"{int(frame['tests'].iloc[position])}",
        alt="Privacy loss after {value} tested hypotheses on a log axis: noise reduction pays for testing once and "
        "for the last hypothesis only, while a search that composes every step pays more for both as it goes on.",
    )


def draw_margins(*, levels: int, failure: float) -> Figure:
    """Exact failure probability of the test against the margin, with the three constants of Theorem A.1."""
    common = {"levels": levels, "sensitivity": 1.0, "epsilon": 1.0}
    margins = np.linspace(10, 90, 81)
    chance = [false_acceptance_probability(float(m), **common) for m in margins]  # type: ignore[arg-type]

    def draw(axes: Axes, theme: Theme) -> None:
        axes.plot(margins, chance, color=theme.text, label="exact chance")
        for index, kind in enumerate(("sharp", "printed")):
            at = accuracy_margin(failure=failure, calibration=kind, **common)  # type: ignore[arg-type]
            height = false_acceptance_probability(at, **common)  # type: ignore[arg-type]
            axes.plot([at], [height], label=f"{kind} margin", **{**theme.line(index), "linestyle": ""})
        drawings.baseline(axes, theme, failure, "allowed")
        drawings.log_axis(axes, "y")
        axes.set_xlabel("margin below the threshold, in Delta / epsilon")
        axes.set_ylabel("chance of failing")
        drawings.legend(axes)

    return figure(
        draw,
        name="af-margins",
        alt="Exact chance that one of the queries is wrongly accepted, falling exponentially in the margin. The "
        "sharp margin lies at the allowed chance; the printed one, more than twice as wide, far below it.",
    )


def draw_indefinite() -> Figure:
    """The one-dimensional noisy quadratic of erratum AF-5c: the normal equations find its maximum."""
    theta = np.linspace(-1, 1, 201)

    def risk(t: ArrayLike) -> FloatArray:
        value = np.asarray(t, dtype=np.float64)
        return -(value**2) - value

    def draw(axes: Axes, theme: Theme) -> None:
        axes.plot(theta, risk(theta), color=theme.text, label="noisy objective")
        for index, (at, label) in enumerate(((-0.5, "normal equations"), (1.0, "exact minimiser"))):
            axes.plot(
                [at], [risk(at)], label=label, **{**theme.line(index), "linestyle": "", "markersize": 9}
            )
        axes.set_xlabel("theta (the ball is the interval shown)")
        axes.set_ylabel("noisy risk")
        drawings.legend(axes)

    return figure(
        draw,
        name="af-indefinite",
        alt="A downward parabola over the interval from minus one to one: the solution of the normal equations "
        "marks its top, the exact minimiser in the ball is the right end of the interval.",
    )


def draw_growth(*, needed: Sequence[float], sensitivity_over_alpha: float, failure: float) -> Figure:
    """Worst-case loss of DoublingMethod over its growth factor, without and with the cost of tests."""
    factors = np.geomspace(1.2, 60, 300)

    def relative_loss(target: float) -> list[float]:
        return [
            worst_case_search_loss(
                float(f),
                needed=target,
                first=1e-5,
                last=50.0,
                failure=failure,
                sensitivity_over_alpha=sensitivity_over_alpha,
            )
            / target
            for f in factors
        ]

    def draw(axes: Axes, theme: Theme) -> None:
        axes.plot(
            factors, [worst_case_growth(float(f)) for f in factors], label="tests free", **theme.curve(0)
        )
        for index, target in enumerate(needed, start=1):
            axes.plot(
                factors, relative_loss(target), label=f"tests paid, needed {target:g}", **theme.curve(index)
            )
        drawings.baseline(axes, theme, 2.0, "doubling", direction="x")
        drawings.log_axis(axes, "x")
        drawings.log_axis(axes, "y")
        axes.set_xlabel("growth factor of epsilon")
        axes.set_ylabel("loss / loss needed")
        drawings.legend(axes)

    return figure(
        draw,
        name="af-growth",
        alt="Worst-case loss over the loss needed, against the growth factor on log axes. With free tests the curve "
        "has its minimum, four, at factor two; with tests paid for, the minimum moves to larger factors.",
    )


def draw_boundary(
    losses: FloatArray, precisions: FloatArray, boundary: BrownianBoundary, *, shown: int = 25
) -> Figure:
    """Simulated loss paths of Brownian noise reduction under the boundary that holds for all of them at once.

    ``losses`` has shape (runs, points); the first ``shown`` runs are drawn.
    """
    bound = boundary.loss(1 / precisions)

    def draw(axes: Axes, theme: Theme) -> None:
        for row in losses[:shown]:
            axes.plot(bound, row, color=theme.colour(0), alpha=0.35, linewidth=0.8)
        axes.plot([], [], color=theme.colour(0), label="loss of one run")
        axes.plot(bound, bound, color=theme.colour(1), label="boundary psi")
        drawings.log_axis(axes, "x")
        axes.set_xlabel("boundary psi at this variance")
        axes.set_ylabel("privacy loss")
        drawings.legend(axes)

    return figure(
        draw,
        name="af-boundary",
        alt="Privacy loss of simulated runs as the variance falls, with the boundary as the steeper curve above "
        "them: no run shown crosses it anywhere along the way.",
    )
