"""Simplex noise: its exact law with one coordinate, the moved answers, and the door."""

import math

import numpy as np
import pytest
from scipy import integrate

from adaptive_dp.oracle_perturbation import simplex
from adaptive_dp.oracle_perturbation.embeddings import SimplexEmbedding, gauge_noise
from adaptive_dp.oracle_perturbation.problems import (
    Solution,
    ThresholdProblem,
    Uncertified,
    enumerate_members,
)
from adaptive_dp.oracle_perturbation.spaces import IntegerBall

LINE = IntegerBall(1, 2, 4)


def exact_law(losses: np.ndarray, epsilon: float) -> np.ndarray:
    """Law of the answer with one coordinate: report-noisy-max with exponential noise of mean 2 / epsilon."""
    scale = 2 / epsilon

    def density(x: float, member: int) -> float:
        others = np.delete(losses, member) - losses[member]
        return math.exp(-x / scale) / scale * float(np.prod(-np.expm1(-np.maximum(x + others, 0) / scale)))

    return np.array(
        [
            integrate.quad(density, 0, 80 * scale, args=(k,), limit=400, points=sorted(set(np.abs(losses))))[
                0
            ]
            for k in range(len(losses))
        ]
    )


def simulated_law(losses: np.ndarray, epsilon: float, draws: int) -> np.ndarray:
    noise = gauge_noise(
        SimplexEmbedding(LINE), epsilon=epsilon, gap=1e-6, rng=np.random.default_rng(0), draws=draws
    )
    return np.bincount(np.argmin(losses - noise[:, 0], axis=1), minlength=len(losses)) / draws


def test_with_one_coordinate_the_law_is_that_of_exponential_noise():
    losses = np.array([0.0, 1.0, 1.0, 2.0, 3.0])
    law = exact_law(losses, 1.0)
    assert law.sum() == pytest.approx(1.0, abs=1e-8)
    draws = 200_000
    # five shares, each within 5 standard errors: false alarm below 3e-6
    error = np.sqrt(law * (1 - law) / draws)
    assert (np.abs(simulated_law(losses, 1.0, draws) - law) < 5 * error).all()


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_exact_law_is_private_and_the_bound_is_reached(epsilon):
    """All changes of five losses by one record that prefers, or minds, any subset; base losses far apart and equal."""
    worst = 0.0
    for base in (np.zeros(5), np.array([0.0, 6.0, 6.0, 6.0, 6.0]), np.array([0.0, 1.0, 2.0, 3.0, 4.0])):
        for bits in range(0, 32, 3):
            change = np.array([(bits >> k) & 1 for k in range(5)], dtype=float)
            one, two = exact_law(base + change, epsilon), exact_law(base + 1 - change, epsilon)
            worst = max(worst, float(np.abs(np.log(one / two)).max()))
    assert worst <= epsilon * (1 + 1e-6)
    assert worst > 0.9 * epsilon


def test_no_answer_is_lost_when_noise_is_moved_by_the_full_distance():
    table = simplex.moved_answers(IntegerBall.signs(3), trials=300, rng=np.random.default_rng(1)).set_index(
        "part"
    )
    assert table.loc[1.0, "survived"] == 1
    assert table.loc[0.9, "survived"] < 1


def problem(rows: int = 60) -> ThresholdProblem:
    rng = np.random.default_rng(2)
    return ThresholdProblem(
        rng.integers(-3, 4, (rows, 3)), rng.choice([-1, 1], rows), IntegerBall.halfspaces(3)
    )


def test_release_is_seeded_and_pure():
    one, two = (
        simplex.simplex_perturbation(problem(), epsilon=1.0, rng=np.random.default_rng(5)) for _ in range(2)
    )
    np.testing.assert_array_equal(one.value, two.value)
    assert one.guarantee.delta == 0
    assert one.guarantee.neighbours == "replace-one"
    costs = SimplexEmbedding(problem().space).costs(one.trace["noise"])
    np.testing.assert_array_equal(one.value, enumerate_members(problem(), costs).point)


def test_an_uncertified_answer_is_not_released():
    def lazy(task, costs):
        found = enumerate_members(task, costs)
        return Solution(found.point, found.objective, found.lower_bound - 1e-3)

    with pytest.raises(Uncertified, match="nothing is released"):
        simplex.simplex_perturbation(problem(), epsilon=1.0, oracle=lazy, rng=np.random.default_rng(0))
    kept = simplex.simplex_perturbation(
        problem(), epsilon=1.0, oracle=lazy, gap=2e-3, rng=np.random.default_rng(0)
    )
    assert problem().space.contains(kept.value)


class Untouched(np.random.Generator):
    """A generator that must not be used."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))

    def gamma(self, *args, **kwargs):
        raise AssertionError("noise was drawn")

    dirichlet = gamma


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"epsilon": 0.0}, ValueError, "epsilon must be positive"),
        ({"epsilon": math.inf}, ValueError, "epsilon must be finite"),
        ({"epsilon": 1e-9}, ValueError, "epsilon must be larger|epsilon or gap must be larger"),
        ({"epsilon": True}, TypeError, "epsilon must be a real number"),
        ({"gap": 0.0}, ValueError, "gap must be positive"),
        ({"gap": -1.0}, ValueError, "gap must be positive"),
        ({"oracle": None}, TypeError, "oracle must be callable"),
        ({"rng": 5}, TypeError, "rng must be a numpy.random.Generator"),
    ],
)
def test_bad_input_is_refused_before_noise_is_drawn(change, error, message):
    arguments = {"epsilon": 1.0, "rng": Untouched(), **change}
    with pytest.raises(error, match=message):
        simplex.simplex_perturbation(problem(), **arguments)


def test_only_threshold_problems_are_taken():
    with pytest.raises(TypeError, match="problem must be a ThresholdProblem"):
        simplex.simplex_perturbation("data", epsilon=1.0, rng=Untouched())  # type: ignore[arg-type]
