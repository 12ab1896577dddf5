"""Embeddings and noise shaped after a body: margins, gauges, the law of the noise, and the shift of the cells."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from adaptive_dp.oracle_perturbation.embeddings import (
    BoxEmbedding,
    Embedding,
    SimplexEmbedding,
    gauge_noise,
    shift,
    simplex_width,
)
from adaptive_dp.oracle_perturbation.problems import ThresholdProblem
from adaptive_dp.oracle_perturbation.spaces import IntegerBall

SPACES = [IntegerBall.signs(1), IntegerBall.signs(3), IntegerBall(2, 2, 6), IntegerBall.halfspaces(5)]
EMBEDDINGS = [kind(space) for kind in (SimplexEmbedding, BoxEmbedding) for space in SPACES]


def inner(embedding: Embedding, noise: np.ndarray) -> np.ndarray:
    """<noise, phi(w)> for every member, up to one constant, read off the costs."""
    costs = embedding.costs(noise)
    members = embedding.space.points()
    column = np.arange(embedding.space.dimension)
    return -costs.per_value[column, members + embedding.space.box].sum(axis=1)


@pytest.mark.parametrize("embedding", EMBEDDINGS, ids=str)
def test_margin_is_the_smallest_over_all_pairs(embedding):
    """Inner products are taken in the space of the embedding: tables of the simplex hold them already."""
    assert isinstance(embedding, Embedding)
    members = embedding.space.points()
    slots = embedding.points(members)
    if isinstance(embedding, SimplexEmbedding):
        differ = (members[:, None] != members[None]).sum(axis=2)
        corner = 1 / (embedding.values - 1)
        products = members.shape[1] - differ * (1 + corner)
    else:
        products = slots @ slots.T
    gaps = np.diag(products)[:, None] - products
    np.fill_diagonal(gaps, np.inf)
    assert gaps.min() == pytest.approx(embedding.margin)


@pytest.mark.parametrize("embedding", EMBEDDINGS, ids=str)
def test_members_lie_on_the_body_and_its_points_inside(embedding):
    d = embedding.space.dimension
    tables = embedding.points(embedding.space.points()).reshape(embedding.space.size, d, -1)
    np.testing.assert_allclose(embedding.gauge(tables), 1.0)
    inside = embedding.gauge(embedding.uniform(500, np.random.default_rng(0)))
    assert inside.max() <= 1
    # uniform in a body of dimension k: the gauge to the power of k is uniform
    assert stats.kstest(inside**embedding.dimension, "uniform").pvalue > 1e-4


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(EMBEDDINGS), st.integers(0, 10**6))
def test_gauges_are_subadditive_and_homogeneous(embedding, seed):
    rng = np.random.default_rng(seed)
    one, two = (
        embedding.uniform(1, rng)[0] * rng.exponential(),
        embedding.uniform(1, rng)[0] * rng.exponential(),
    )
    assert embedding.gauge(one + two) <= embedding.gauge(one) + embedding.gauge(two) + 1e-12
    assert embedding.gauge(3.5 * one) == pytest.approx(3.5 * embedding.gauge(one))


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(EMBEDDINGS), st.floats(0.0, 3.0), st.integers(0, 10**6))
def test_moved_noise_keeps_the_answer_on_every_neighbour(embedding, size, seed):
    """The step that carries the theorem, with any answer that is within the gap and any change of one record."""
    rng = np.random.default_rng(seed)
    gap, count = 0.25, embedding.space.size
    base, old, new = rng.integers(0, 6, count) * 1.0, rng.integers(0, 2, count), rng.integers(0, 2, count)
    noise = gauge_noise(embedding, epsilon=10.0 ** (2 - size), gap=gap, rng=rng)
    values = base + old - inner(embedding, noise)
    within = np.flatnonzero(values < values.min() + gap)
    answer = int(rng.choice(within))
    corner = embedding.points(embedding.space.points()[answer]).reshape(embedding.space.dimension, -1)
    moved = noise + shift(embedding, gap) * corner
    after = base + new - inner(embedding, moved)
    others = np.delete(after, answer)
    assert (others > after[answer] + gap - 1e-9).all()


@pytest.mark.parametrize("embedding", EMBEDDINGS[:2] + EMBEDDINGS[4:6], ids=str)
def test_gauge_of_the_noise_is_gamma(embedding):
    draws = gauge_noise(embedding, epsilon=0.5, gap=1e-6, rng=np.random.default_rng(3), draws=4000)
    scale = shift(embedding, 1e-6) / 0.5
    assert (
        stats.kstest(embedding.gauge(draws), stats.gamma(embedding.dimension, scale=scale).cdf).pvalue > 1e-4
    )


@pytest.mark.parametrize(("values", "dimension"), [(2, 3), (3, 4), (5, 2)])
def test_width_of_the_simplex_noise(values, dimension):
    rng = np.random.default_rng(4)
    weights = rng.dirichlet(np.ones(values), size=(40_000, dimension))
    c = 2 * (values - 1) / values
    radius = rng.gamma(dimension * (values - 1) + 1, c, 40_000)
    largest = radius * ((values * weights - 1) / (values - 1)).max(axis=2).sum(axis=1)
    error = largest.std() / np.sqrt(largest.size)
    assert abs(largest.mean() - simplex_width(values, dimension)) < 5 * error


def test_costs_are_tables_that_any_oracle_of_the_space_takes():
    space = IntegerBall.signs(3)
    problem = ThresholdProblem([[1, 0, 2], [0, 1, -1]], [1, -1], space)
    for embedding in (SimplexEmbedding(space), BoxEmbedding(space)):
        noise = gauge_noise(embedding, epsilon=1.0, gap=1e-6, rng=np.random.default_rng(5))
        assert problem.check_costs(embedding.costs(noise)).per_squared_norm.max() == 0


def test_same_seed_same_noise_and_bad_input_is_refused():
    embedding = SimplexEmbedding(IntegerBall.signs(2))
    draw = lambda seed: gauge_noise(embedding, epsilon=1.0, gap=1e-6, rng=np.random.default_rng(seed))  # noqa: E731
    np.testing.assert_array_equal(draw(1), draw(1))
    assert draw(1).shape == (2, 3)
    for change, error, message in (
        ({"epsilon": 0.0}, ValueError, "epsilon must be positive"),
        ({"epsilon": np.nan}, ValueError, "epsilon must be finite"),
        ({"gap": 0.0}, ValueError, "gap must be positive"),
        ({"rng": 3}, TypeError, "rng must be a numpy.random.Generator"),
        ({"draws": 0}, ValueError, "draws must be at least 1"),
    ):
        arguments = {"epsilon": 1.0, "gap": 1e-6, "rng": np.random.default_rng(0), **change}
        with pytest.raises(error, match=message):
            gauge_noise(embedding, **arguments)


@pytest.mark.parametrize("kind", [SimplexEmbedding, BoxEmbedding])
def test_points_and_tables_must_fit_the_space(kind):
    embedding = kind(IntegerBall.signs(2))
    for members, message in (
        ([[2, 0]], "members must be whole numbers up to 1"),
        ([[0.5, 0.0]], "members must be whole numbers"),
        ([[1, 0, 0]], "members must have 2 coordinates"),
    ):
        with pytest.raises(ValueError, match=message):
            embedding.points(members)
    with pytest.raises(ValueError, match="noise must have shape"):
        embedding.costs(np.zeros((1, 3)))
