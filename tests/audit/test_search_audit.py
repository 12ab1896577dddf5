"""Audits of the searches: exact laws of the test, and sampled events against the ex-post claim.

Neighbours replace one record of a tiny data set in the worst way. The sampled audits compare, for every published
index and every half-line of theta, a Clopper-Pearson lower bound on the log ratio with the epsilon that the release
claims *at that index*; complements are not used, since they mix indices with different claims.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adaptive_dp.accuracy_first import (
    LogisticProblem,
    RidgeProblem,
    brownian,
    brownian_nr,
    cov_nr,
    covariance_perturbation,
    doubling,
    halting_probability,
    output_nr,
    output_perturbation,
    prepare,
)
from adaptive_dp.accuracy_first import mechanisms as library
from adaptive_dp.accuracy_first.calibration import (
    above_threshold_epsilon,
    minimiser_radius,
    minimiser_sensitivity,
    risk_query_sensitivity,
)
from adaptive_dp.audit import clopper_pearson
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.privacy import Domain, Guarantee, Neighbours, Release
from adaptive_dp.solvers import project_to_ball

Array = NDArray[np.float64]
Problem = RidgeProblem | LogisticProblem
Pair = tuple[Problem, Problem]
# Chance that any one audit of this file fails although the claim holds.
FALSE_FAIL = 1e-6


def make_pair(
    labels: str, rows: list[list[float]], y: list[float], x: list[float], label: float, lam: float
) -> Pair:
    """Two prepared problems; the second has its last record replaced by (x, label)."""
    norm = "l1" if all(np.abs(row).sum() <= 1 for row in [*rows, x]) else "l2"
    domain = Domain(norm, 1.0, labels)
    first = Dataset(np.array(rows), np.array(y), domain)
    second = Dataset(np.array([*rows[:-1], x]), np.array([*y[:-1], label]), domain)
    return prepare(first, lam=lam), prepare(second, lam=lam)


# ------------------------------------------------------------------ the test, by its exact law


def test_losses(
    thetas: list[Array], pair: Pair, *, alpha: float, failure: float, calibration: str
) -> list[float]:
    """Exact |log P(halt at t)/P'(halt at t)| of the search's test for fixed hypotheses, t = 1 ... T."""
    problem = pair[0]
    sensitivity = risk_query_sensitivity(
        problem.task, rows=problem.rows, lam=problem.lam, calibration=calibration
    )
    epsilon = above_threshold_epsilon(
        sensitivity=sensitivity, alpha=alpha, failure=failure, levels=len(thetas), calibration=calibration
    )
    losses = []
    for last in range(1, len(thetas) + 1):
        chances = [
            halting_probability(
                [-side.excess_risk(theta) for theta in thetas[:last]],
                threshold=-alpha / 2,
                sensitivity=sensitivity,
                epsilon=epsilon,
            )
            for side in pair
        ]
        if min(chances) > 1e-200:  # below, the quadrature has no digits left
            losses.append(abs(math.log(chances[0] / chances[1])) / epsilon)
    return losses or [0.0]


test_losses.__test__ = False  # type: ignore[attr-defined]


def assert_test_is_private(losses: list[float]) -> None:
    """Largest loss in units of the claimed eps_0."""
    assert max(losses) <= 1 + 1e-9, f"loss {max(losses):.4g} times the claim"


def extreme_pair(labels: str, lam: float) -> Pair:
    """Base data that push theta* to its largest norm along e1, and one record that changes sides."""
    radius = minimiser_radius("ridge" if labels == "real" else "logistic", lam=lam)
    u = math.sqrt(lam) if labels == "real" else (1 + 0.2784645427610738) / radius
    base = [[u, 0.0]] * 200
    if labels == "real":
        return make_pair(labels, [*base, [1.0, 0.0]], [1.0] * 200 + [-1.0], [0.0, 1.0], -1.0, lam)
    return make_pair(labels, [*base, [1.0, 0.0]], [1.0] * 201, [1.0, 0.0], -1.0, lam)


@pytest.mark.parametrize("calibration", ["printed", "sharp"])
@pytest.mark.parametrize("labels", ["real", "sign"])
def test_exact_loss_of_the_test_is_within_its_claim(labels: str, calibration: str) -> None:
    """AF-06, AF-08, erratum AF-7: lists of 1 to 3 hypotheses in the ball, exact to 1e-12; no sampling."""
    lam = 0.05
    pair = extreme_pair(labels, lam)
    radius = minimiser_radius(pair[0].task, lam=lam, calibration=calibration)
    rng = np.random.default_rng(1)
    corners = [radius * np.array(c) for c in ([1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0])]
    largest = 0.0
    for trial in range(60):
        points = rng.standard_normal((3, 2))
        points *= radius * rng.random((3, 1)) / np.linalg.norm(points, axis=1, keepdims=True)
        thetas = [points[k] if rng.random() < 0.5 else corners[rng.integers(4)] for k in range(1 + trial % 3)]
        # alpha about twice an excess: the test is then undecided, where its loss is largest
        alpha = 2 * max(1e-3, pair[0].excess_risk(thetas[-1])) * 10 ** rng.uniform(-1, 1)
        losses = test_losses(thetas, pair, alpha=alpha, failure=0.3, calibration=calibration)
        assert_test_is_private(losses)
        largest = max(largest, *losses)
    assert largest > 0.15  # the search finds losses of the order of the claim


def printed_rescaling(theta: Array, radius: float) -> Array:
    """Algorithm 5 as printed: hypotheses *inside* the ball are stretched, those outside are left alone."""
    norm = float(np.linalg.norm(theta))
    return radius * theta / norm if norm <= radius else theta


@pytest.mark.parametrize(
    "rule", [pytest.param(printed_rescaling, id="printed"), pytest.param(lambda t, r: t, id="unprojected")]
)
@pytest.mark.parametrize("labels", ["real", "sign"])
def test_planted_fault_hypotheses_outside_the_ball_break_the_test(
    labels: str, rule: Callable[[Array, float], Array]
) -> None:
    """Erratum AF-1a: the printed rescale rule and no projection leave norms of 60 M; the same check fails."""
    lam = 0.05
    pair = extreme_pair(labels, lam)
    radius = minimiser_radius(pair[0].task, lam=lam, calibration="printed")
    direction = np.array([-1.0, 0.0]) if labels == "sign" else np.array([0.0, 1.0])
    for shape, fails in ((rule, True), (project_to_ball, False)):
        theta = shape(60 * radius * direction, radius)
        near = shape(58 * radius * direction, radius)
        alpha = 2 * pair[0].excess_risk(theta)
        worst = [
            loss
            for factor in (0.25, 0.5, 1.0, 2.0)
            for loss in test_losses(
                [near, theta], pair, alpha=factor * alpha, failure=0.3, calibration="printed"
            )
        ]
        if fails:
            with pytest.raises(AssertionError, match="times the claim"):
                assert_test_is_private(worst)
        else:
            assert_test_is_private(worst)


@pytest.mark.parametrize("labels", ["real", "sign"])
def test_planted_fault_too_small_a_query_sensitivity_breaks_the_test(
    labels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AF-15: noise for a quarter of the query sensitivity loses more than the eps_0 computed from it.

    Half of it is refuted as a sensitivity (test_calibration); the test as a whole pays for queries that move both
    ways, and these pairs move them one way, so that its loss would still be within the claim.
    """
    pair = extreme_pair(labels, 0.05)
    radius = minimiser_radius(pair[0].task, lam=0.05)
    theta = radius * (np.array([-1.0, 0.0]) if labels == "sign" else np.array([0.0, 1.0]))

    def worst() -> list[float]:
        losses = []
        for count in (1, 2, 12):
            for factor in (0.5, 1.0, 2.0, 8.0):
                alpha = factor * 2 * pair[0].excess_risk(theta)
                losses += test_losses([theta] * count, pair, alpha=alpha, failure=0.3, calibration="sharp")
        return losses

    assert_test_is_private(worst())
    original = risk_query_sensitivity
    monkeypatch.setitem(
        globals(), "risk_query_sensitivity", lambda *args, **kwargs: original(*args, **kwargs) / 4
    )
    with pytest.raises(AssertionError, match="times the claim"):
        assert_test_is_private(worst())


# ------------------------------------------------------------------------------ sampled events


def outcomes(
    run: Callable[[Problem, np.random.Generator], Release[Array]], problem: Problem, runs: int, seed: int
) -> list[tuple[int | None, Array | None, float]]:
    rng = np.random.default_rng(seed)
    releases = [run(problem, rng) for _ in range(runs)]
    return [(r.index, None if r.refused else np.asarray(r.value), r.guarantee.epsilon) for r in releases]


def audit(
    run: Callable[[Problem, np.random.Generator], Release[Array]],
    pair: Pair,
    *,
    cuts: list[float],
    runs: int,
    delta: float = 0.0,
    score: Callable[[Array], float] = lambda theta: float(theta[0]),
) -> tuple[float, float]:
    """Largest (lower bound - claim) over all events (index, half-line of the score), and largest lower bound.

    Union bound over events, both directions and both tails: wrong with chance at most FALSE_FAIL.
    """
    left, right = (outcomes(run, problem, runs, seed) for seed, problem in enumerate(pair, start=71))
    claims = {index: claim for index, _, claim in left + right}
    events: list[tuple[int | None, float, int]] = [
        (index, cut, side) for index in claims for cut in (math.inf, *cuts) for side in (-1, 1)
    ]
    tail = FALSE_FAIL / (4 * len(events))

    def count(
        seen: list[tuple[int | None, Array | None, float]], event: tuple[int | None, float, int]
    ) -> int:
        index, cut, side = event
        if cut == math.inf:
            return sum(i == index for i, _, _ in seen)
        return sum(i == index and t is not None and (score(t) - cut) * side > 0 for i, t, _ in seen)

    excess, best = -math.inf, 0.0
    for event in events:
        numbers = [count(seen, event) for seen in (left, right)]
        for one, other in (numbers, numbers[::-1]):
            low = clopper_pearson(one, runs, tail)[0] - delta
            high = clopper_pearson(other, runs, tail)[1]
            bound = math.log(low / high) if low > 0 else 0.0
            excess, best = max(excess, bound - claims[event[0]]), max(best, bound)
    return excess, best


def assert_claims_survive(result: tuple[float, float]) -> None:
    """No event shows more than the release claims at its index."""
    assert result[0] <= 0, f"lower bound {result[1]:.3f} beats the claim by {result[0]:.3f}"


RIDGE = functools.partial(make_pair, "real", [[1.0], [1.0]], [1.0, 1.0], [1.0], -1.0)
LOGISTIC = functools.partial(make_pair, "sign", [[1.0], [1.0]], [1.0, 1.0], [1.0], -1.0)


@pytest.fixture(autouse=True)
def _cached_public_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of public numbers that every run computes again."""
    monkeypatch.setattr(brownian, "brownian_levels", functools.lru_cache(brownian.brownian_levels))
    monkeypatch.setattr(library, "invert_theory", functools.lru_cache(library.invert_theory))


CASES: dict[str, tuple[Callable[..., Pair], dict[str, Any], Callable[..., Release[Array]]]] = {
    "cov_nr": (RIDGE, {"epsilons": [0.5, 1.0, 2.0]}, cov_nr),
    "output_nr_ridge": (RIDGE, {"epsilons": [0.5, 1.0, 2.0]}, output_nr),
    "output_nr_logistic": (LOGISTIC, {"epsilons": [0.5, 1.0, 2.0]}, output_nr),
    "doubling_cov": (RIDGE, {"epsilons": [0.5, 1.0], "mechanism": "covariance"}, doubling),
    "doubling_ridge": (RIDGE, {"epsilons": [0.5, 1.0], "mechanism": "output"}, doubling),
    "doubling_logistic": (LOGISTIC, {"epsilons": [0.5, 1.0], "mechanism": "output"}, doubling),
}


@pytest.mark.audit
@pytest.mark.parametrize("calibration", ["printed", "sharp"])
@pytest.mark.parametrize("name", CASES)
def test_no_event_of_a_search_beats_its_ex_post_claim(name: str, calibration: str) -> None:
    """AF-03, AF-06, AF-08, AF-11: n = 2, p = 1, 400 runs a side; false-fail rate at most 1e-6."""
    make, options, search = CASES[name]
    pair = make(0.5)
    sensitivity = risk_query_sensitivity(pair[0].task, rows=2, lam=0.5, calibration=calibration)
    # the test costs about 0.5 to 1: both parts of the claim are then of the size that 400 runs can see
    run = functools.partial(search, alpha=12 * sensitivity, failure=0.5, calibration=calibration, **options)
    cuts = [-0.5, 0.0, 0.3, 0.6]
    assert_claims_survive(audit(lambda problem, rng: run(problem, rng=rng), pair, cuts=cuts, runs=400))


@pytest.mark.audit
@pytest.mark.parametrize(
    ("make", "mechanism"), [(RIDGE, "covariance"), (RIDGE, "output"), (LOGISTIC, "output")]
)
def test_no_event_of_a_brownian_search_beats_its_claim(make: Callable[..., Pair], mechanism: str) -> None:
    """AF-24: the same audit at delta = 0.02; false-fail rate at most 1e-6."""
    pair = make(0.5)
    sensitivity = risk_query_sensitivity(pair[0].task, rows=2, lam=0.5)
    run = functools.partial(
        brownian_nr,
        mechanism=mechanism,
        alpha=12 * sensitivity,
        failure=0.5,
        delta=0.02,
        largest=2.5,
        count=3,
        tuned_epsilon=1.0,
    )
    result = audit(
        lambda problem, rng: run(problem, rng=rng), pair, cuts=[-0.5, 0.0, 0.3, 0.6], runs=400, delta=0.02
    )
    assert_claims_survive(result)


def diagonal_pair() -> Pair:
    """Logistic, rows of l2 norm at most 1: theta* moves by 0.85 of 2/(n lam), along the diagonal (worst for l1)."""
    lam = 0.005
    along, across = np.array([1.0, -1.0]) / math.sqrt(2), np.array([1.0, 1.0]) / math.sqrt(2)
    u = (1 + 0.2784645427610738) / minimiser_radius("logistic", lam=lam)
    first, second = (-0.5 * along + sign * math.sqrt(0.75) * across for sign in (1, -1))
    rows = [list(u * along)] * 10_000
    return make_pair("sign", [*rows, list(first)], [1.0] * 10_001, list(second), 1.0, lam)


def over_claimed(
    run: Callable[..., Release[Array]], claim: float, factor: float
) -> Callable[[Problem, np.random.Generator], Release[Array]]:
    """A mechanism that claims ``claim`` and adds noise for ``factor`` times that epsilon."""
    guarantee = Guarantee("ex-ante", claim, Neighbours.REPLACE_ONE)
    return lambda problem, rng: Release(run(problem, epsilon=claim * factor, rng=rng).value, guarantee)


@pytest.mark.audit
def test_output_perturbation_keeps_its_claim_and_half_the_sensitivity_does_not() -> None:
    """AF-09, Lemma A.10: 3,000 runs a side on a pair that comes near the bound; planted fault: half the noise."""
    pair = diagonal_pair()
    highest = max((problem.minimiser for problem in pair), key=lambda theta: float(theta.sum()))
    step = np.abs(pair[0].minimiser - pair[1].minimiser)
    bound = minimiser_sensitivity("logistic", rows=10_001, columns=2, lam=0.005)
    assert 0.8 * bound < step.sum() <= bound

    def both_above(theta: Array) -> float:
        return float(min(theta - highest))

    check = functools.partial(audit, pair=pair, cuts=[0.0], runs=3000, score=both_above)
    honest = check(over_claimed(output_perturbation, 1.5, 1.0))
    assert_claims_survive(honest)
    assert honest[1] > 0.6  # a good part of what the claim allows is seen
    with pytest.raises(AssertionError, match="beats the claim"):
        assert_claims_survive(check(over_claimed(output_perturbation, 1.5, 2.0)))


@pytest.mark.audit
def test_covariance_perturbation_keeps_its_claim_and_a_quarter_of_the_noise_does_not() -> None:
    """AF-07, Lemma A.6: planted fault is sensitivity 1 (add or remove, X'X alone) in place of 4."""
    check = functools.partial(audit, pair=RIDGE(5.0), cuts=[0.0, 0.1], runs=1000)
    honest = check(over_claimed(covariance_perturbation, 2.0, 1.0))
    assert_claims_survive(honest)
    assert honest[1] > 0.1
    with pytest.raises(AssertionError, match="beats the claim"):
        assert_claims_survive(check(over_claimed(covariance_perturbation, 2.0, 4.0)))
