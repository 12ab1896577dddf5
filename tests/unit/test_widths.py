"""The mean of the largest perturbation over W."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_dp.oracle_perturbation import widths
from adaptive_dp.oracle_perturbation.embeddings import SimplexEmbedding, gauge_noise, simplex_width
from adaptive_dp.oracle_perturbation.problems import ThresholdProblem, enumerate_members
from adaptive_dp.oracle_perturbation.spaces import IntegerBall, lift


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([IntegerBall.signs(3), IntegerBall(3, 2, 5), IntegerBall.halfspaces(4)]),
    st.integers(0, 10**6),
)
def test_largest_agrees_with_every_member(space, seed):
    rng = np.random.default_rng(seed)
    gains = rng.normal(size=(4, space.dimension, 2 * space.box + 1))
    last = rng.normal(size=(4, space.squared_radius + 1))
    members, column = space.points(), np.arange(space.dimension)
    every = gains[:, column, members + space.box].sum(axis=2) + last[:, (members**2).sum(axis=1)]
    np.testing.assert_allclose(widths.largest(space, gains, last), every.max(axis=1))


def test_width_of_the_lift_is_that_of_the_definition():
    space = IntegerBall.signs(3)
    drawn = widths.lifted_width(space, 20_000, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    direction = rng.normal(size=(20_000, 4))
    eta = direction / np.linalg.norm(direction, axis=1, keepdims=True) * rng.gamma(4, 12.0, (20_000, 1))
    other = (eta @ lift(space.points(), space.radius).T).max(axis=1)
    error = np.hypot(drawn.std(), other.std()) / np.sqrt(20_000)
    assert abs(drawn.mean() - other.mean()) < 5 * error


def test_simplex_is_the_narrowest_and_agrees_with_its_closed_form():
    table = widths.width_table([2, 6], 4000, np.random.default_rng(2)).set_index("d")
    for d in (2, 6):
        row = table.loc[d]
        assert abs(row["simplex"] - simplex_width(3, d)) < 5 * row["error"]
        assert row["simplex"] < row["values"] < row["box"] < row["laplace"]
        assert 3 * row["simplex"] < row["norm"] * 1.1


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_excess_of_the_answer_is_below_the_width_of_its_draw(seed):
    rng = np.random.default_rng(seed)
    space = IntegerBall.signs(3)
    problem = ThresholdProblem(rng.integers(-3, 4, (40, 3)), rng.choice([-1, 1], 40), space)
    embedding = SimplexEmbedding(space)
    costs = embedding.costs(gauge_noise(embedding, epsilon=0.5, gap=1e-6, rng=rng))
    answer = enumerate_members(problem, costs).point
    best = enumerate_members(problem, embedding.costs(np.zeros((3, 3)))).point
    column = np.arange(3)
    gain = -costs.per_value[column, answer + 1].sum() + costs.per_value[column, best + 1].sum()
    assert problem.errors(answer) - problem.errors(best) <= gain + 1e-9
    assert (
        -costs.per_value[column, answer + 1].sum()
        <= widths.largest(space, -costs.per_value[None], np.zeros((1, 4)))[0] + 1e-9
    )


def test_draws_must_be_a_count():
    with pytest.raises(ValueError, match="draws must be at least 1"):
        widths.lifted_width(IntegerBall.signs(2), 0, np.random.default_rng(0))
