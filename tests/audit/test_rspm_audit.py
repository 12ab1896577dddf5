"""What an attacker can prove against RSPM, noise on values, and the programs that are not RSPM.

A pair over {-1, 0, 1} for which Laplace noise spends all of epsilon, with the exact loss to compare with. Each audit
has confidence .999: an audit that must pass fails with probability .001 at most, and there are five of them, so that
with another seed this file fails wrongly with probability .005 at most. Every planted fault is refuted.
"""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_dp import audit
from adaptive_dp.oracle_perturbation.flaws_separators import ANSWER, figure_three_answers, figure_three_data
from adaptive_dp.oracle_perturbation.problems import TableProblem, ThresholdProblem
from adaptive_dp.oracle_perturbation.rspm import rspm, separator_noise
from adaptive_dp.oracle_perturbation.separator_gaussian import printed_separator_sigma
from adaptive_dp.oracle_perturbation.separator_laws import three_point_law
from adaptive_dp.oracle_perturbation.spaces import IntegerBall, PointSet
from adaptive_dp.oracle_perturbation.value_noise import value_noise, value_perturbation

pytestmark = pytest.mark.audit
CONFIDENCE, RUNS, EPSILON = 0.999, 200_000, 1.0
# Losses at -1, 0, +1: a record that votes against 0 stays, one that votes for 0 is replaced by one against it.
PAIR = (np.array([1.0, 1.0, 1.0]), np.array([0.0, 2.0, 0.0]))
SEPARATORS = np.array([[0, 0, 1], [1, 0, 0]])


def batch(kind, epsilon):
    """Answers -1, 0, +1 as 0, 1, 2, ``runs`` times: what the mechanisms publish (checked below), in one product."""

    def mechanism(losses, runs, rng):
        if kind == "values":
            noise = value_noise(IntegerBall.signs(1), epsilon=epsilon).draw(rng, draws=runs)
            return np.argmin(losses - noise[:, 0], axis=1)
        weights = separator_noise(kind, 2, epsilon=epsilon).draw(rng, draws=runs)
        return np.argmin(losses + weights @ SEPARATORS, axis=1)

    return mechanism


def answers():
    return [lambda found, place=place: found == place for place in range(3)]


def audited(kind, epsilon, seed):
    return audit.lower_bound(
        batch(kind, epsilon), PAIR, events=answers(), runs=RUNS, confidence=CONFIDENCE,
        rng=np.random.default_rng(seed),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["laplace", "box", "values"])
def test_claims_are_kept_and_nearly_used(kind):
    laws = [three_point_law(losses, kind, epsilon=EPSILON) for losses in PAIR]
    exact = float(np.abs(np.log(laws[0] / laws[1])).max())
    result = audited(kind, EPSILON, 1)
    assert result.passes(EPSILON)
    assert 0.9 * exact <= result.lower <= exact + 1e-5
    assert result.ceiling > 2 * EPSILON
    if kind == "laplace":
        assert exact == pytest.approx(EPSILON)


@pytest.mark.parametrize("kind", ["laplace", "box", "values"])
def test_half_the_noise_is_refuted(kind):
    assert not audited(kind, 2 * EPSILON, 2).passes(EPSILON)


def test_separators_pass_where_figure_three_fails():
    """Errata 11: an answer that the program of Figure 3 gives on D only. RSPM with the same m = 4 keeps its claim."""
    points = IntegerBall.signs(2).points()
    table = np.stack([points[:, 0] == 1, points[:, 0] == -1, points[:, 1] == 1, points[:, 1] == -1])
    pair = figure_three_data(2)
    place = int(np.flatnonzero((points == ANSWER).all(axis=1))[0])

    def separators(features, runs, rng):
        errors = ThresholdProblem(features, np.ones(2), IntegerBall.signs(2)).errors(points)
        weights = separator_noise("laplace", 4, epsilon=EPSILON).draw(rng, draws=runs)
        return np.argmin(errors + weights @ table, axis=1) == place

    sigma = printed_separator_sigma(4, epsilon=EPSILON, delta=1e-8)

    def printed(features, runs, rng):
        return (figure_three_answers(features, sigma, runs, rng) == ANSWER).all(axis=1)

    for mechanism, fine in ((separators, True), (printed, False)):
        result = audit.lower_bound(
            mechanism, pair, events=lambda found: found, runs=RUNS, confidence=CONFIDENCE,
            delta=1e-8, rng=np.random.default_rng(3),
        )  # fmt: skip
        assert result.passes(EPSILON) == fine


def test_the_mechanisms_themselves_keep_their_claims():
    """Through ``rspm`` and ``value_perturbation``, with as many runs as one can afford, and their guarantees."""
    space = PointSet(np.array([[-1.0], [0.0], [1.0]]))
    rows = ([[0, 1, 0], [1, 0, 1]], [[0, 1, 0], [0, 1, 0]])
    pair = tuple(TableProblem(np.array(losses, dtype=float), space) for losses in rows)
    for problem, losses in zip(pair, PAIR, strict=True):
        np.testing.assert_array_equal(problem.total, losses)

    def run(problem, rng):
        return rspm(problem, epsilon=EPSILON, separators=SEPARATORS, rng=rng).value[0]

    guarantee = rspm(pair[0], epsilon=EPSILON, separators=SEPARATORS, rng=np.random.default_rng(0)).guarantee
    result = audit.lower_bound(
        audit.one_by_one(run), pair, events=[audit.for_each(lambda w: w == 0)], runs=3000,
        confidence=CONFIDENCE, rng=np.random.default_rng(4),
    )  # fmt: skip
    assert result.passes(guarantee)
    assert result.lower > 0.5 * EPSILON
    # The batch above publishes the same thing, and so does noise on values: frequencies of all answers agree.
    problem = ThresholdProblem([[1], [-1]], [1, 1], IntegerBall.signs(1))
    rng = np.random.default_rng(5)
    found = [int(value_perturbation(problem, epsilon=EPSILON, rng=rng).value[0]) + 1 for _ in range(3000)]
    expected = three_point_law([1.0, 2.0, 1.0], "values", epsilon=EPSILON)
    shares = np.bincount(found, minlength=3) / 3000
    assert (np.abs(shares - expected) < 5 * np.sqrt(expected * (1 - expected) / 3000)).all()
