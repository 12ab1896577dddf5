"""The step that all mechanisms share: what an oracle gets, and what is checked of its answer."""

import numpy as np
import pytest

from adaptive_dp.oracle_perturbation.certificates import certify, check_oracle, consult, rounding
from adaptive_dp.oracle_perturbation.opdisc import opdisc
from adaptive_dp.oracle_perturbation.problems import (
    Solution,
    TableProblem,
    ThresholdProblem,
    Uncertified,
    enumerate_members,
)
from adaptive_dp.oracle_perturbation.rspm import rspm
from adaptive_dp.oracle_perturbation.simplex import simplex_perturbation
from adaptive_dp.oracle_perturbation.spaces import IntegerBall, PointSet
from adaptive_dp.oracle_perturbation.value_noise import value_perturbation

PAIR = PointSet(np.array([[-1.0], [1.0]]))


class Untouched(np.random.Generator):
    """A generator that must not be used."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))

    def _drawn(self, *args, **kwargs):
        raise AssertionError("noise was drawn")

    gamma = normal = laplace = uniform = exponential = standard_normal = dirichlet = _drawn


def wiping(problem, costs):
    """An oracle that wipes out its costs and then answers for what is left."""
    costs[:] = 0.0
    return Solution(problem.space.members[0], float(problem.total[0]), float(problem.total.min()))


def test_an_oracle_cannot_change_what_it_is_judged_by():
    problem = TableProblem(np.array([[0.0, 1.0]]), PAIR)
    for seed in range(5):
        with pytest.raises((ValueError, Uncertified)):
            opdisc(problem, epsilon=1.0, oracle=wiping, rng=np.random.default_rng(seed))


def test_consult_hands_over_a_copy():
    problem, costs = TableProblem(np.array([[0.0, 1.0]]), PAIR), np.array([3.0, 4.0])
    wiped = consult(problem, costs, wiping)
    np.testing.assert_array_equal(costs, [3.0, 4.0])
    with pytest.raises(ValueError, match="not that of its point"):
        certify(problem, costs, wiped, gap=1e-6, length=5.0)


def test_rounding_is_public_for_unbounded_losses():
    small = TableProblem(np.array([[0.0, 1.0], [0.0, 1.0]]), PAIR, lipschitz=1.0)
    large = TableProblem(np.array([[0.0, 1.0], [1e12, 1e12]]), PAIR, lipschitz=1.0)
    assert rounding(small, 10.0) == rounding(large, 10.0)
    for problem in (small, large):
        assert opdisc(problem, epsilon=1.0, rng=np.random.default_rng(0)).guarantee.delta == 0


def test_a_space_that_cannot_be_listed_is_refused_before_noise_is_drawn():
    space = IntegerBall.signs(20)
    problem = ThresholdProblem(np.ones((2, 20)), [1, -1], space)
    for mechanism in (opdisc, rspm, value_perturbation, simplex_perturbation):
        with pytest.raises(ValueError, match="oracle must be another one"):
            mechanism(problem, epsilon=1.0, rng=Untouched())
        with pytest.raises(TypeError, match="oracle must be callable"):
            mechanism(problem, epsilon=1.0, oracle=3, rng=Untouched())
    check_oracle(problem, lambda task, costs: enumerate_members(task, costs))


def test_a_fallback_that_is_never_needed_is_free_at_any_epsilon():
    problem = TableProblem(np.array([[0.0, 1.0]]), PAIR)
    release = opdisc(problem, epsilon=1000.0, fallback=[1.0], failure_bound=0.0, rng=np.random.default_rng(0))
    assert release.guarantee.delta == 0
