"""Noise: the laws, the checks at the door, and independence from anything but the generator.

Each Kolmogorov-Smirnov test below runs on a fixed seed: it cannot fail by chance, only by change.
"""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from adaptive_dp.noise import (
    check_scale,
    gaussian,
    goe,
    laplace,
    laplace_characteristic_function,
    laplace_log_density,
    laplace_quantile,
    laplace_tail,
    norm_exponential,
    norm_exponential_radius,
    norm_exponential_tail,
)

SAMPLERS = [(laplace, stats.laplace), (gaussian, stats.norm)]
each = pytest.mark.parametrize(("sample", "law"), SAMPLERS, ids=["laplace", "gaussian"])


@pytest.fixture
def rng():
    return np.random.default_rng(20261)


@each
@pytest.mark.parametrize("scale", [1e-6, 1.0, 40.0])
def test_the_law(sample, law, scale, rng):
    draws = sample(scale, 50_000, rng)
    assert stats.kstest(draws, law(scale=scale).cdf).pvalue > 1e-3
    # The test has power: a scale 6% off is seen.
    assert stats.kstest(draws, law(scale=1.06 * scale).cdf).pvalue < 1e-3


@each
def test_each_entry_may_have_its_own_scale(sample, law, rng):
    scales = np.array([0.1, 1.0, 10.0])
    draws = sample(scales, (20_000, 3), rng)
    assert draws.shape == (20_000, 3)
    for column, scale in zip(draws.T, scales, strict=True):
        assert stats.kstest(column, law(scale=scale).cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef(draws, rowvar=False) - np.eye(3)).max() < 0.03


@each
def test_shapes_and_reproducibility(sample, law):
    for shape, expected in (
        (3, (3,)),
        ((2, 5), (2, 5)),
        ((), ()),
        (0, (0,)),
        ([2, 1], (2, 1)),
        (np.int64(4), (4,)),
    ):
        assert sample(1.0, shape, np.random.default_rng(1)).shape == expected
    first, again = (sample(2.0, 5, np.random.default_rng(7)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert first.dtype == np.float64


@each
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, [1.0, 0.0], [1.0, -math.inf]])
def test_bad_scales_are_refused_before_anything_is_drawn(sample, law, bad, rng):
    state = rng.bit_generator.state
    with pytest.raises(ValueError, match="scale must be"):
        sample(bad, 2, rng)
    assert rng.bit_generator.state == state


@each
def test_bad_arguments_are_refused(sample, law, rng):
    state = rng.bit_generator.state
    with pytest.raises(TypeError, match="scale must be numeric"):
        sample("1", 2, rng)
    with pytest.raises(ValueError, match=r"scale must broadcast to shape \(2,\)"):
        sample([1.0, 2.0, 3.0], 2, rng)
    with pytest.raises(ValueError, match="scale must broadcast"):
        sample(np.ones((3, 2)), 2, rng)  # would silently draw more than was asked for
    with pytest.raises(ValueError, match="shape must be nonnegative"):
        sample(1.0, (2, -1), rng)
    for shape in (1.5, (2.0,), "ab", None):
        with pytest.raises(TypeError, match="shape must be an integer"):
            sample(1.0, shape, rng)
    assert rng.bit_generator.state == state
    for seed in (3, None, np.random.RandomState(3)):
        with pytest.raises(TypeError, match=r"rng must be a numpy\.random\.Generator"):
            sample(1.0, 2, seed)


def test_check_scale_names_the_entry():
    with pytest.raises(ValueError, match=r"sigma must be positive, got .*-2\.0.* at index \(1,\)"):
        check_scale("sigma", [1.0, -2.0])


@pytest.mark.parametrize("scale", [0.3, 2.0])
def test_characteristic_function_is_the_integral_of_the_density(scale):
    for s in (0.0, 0.4, 3.0):
        value, _ = integrate.quad(
            lambda x, s=s: 2 * math.cos(s * x) * math.exp(float(laplace_log_density(x, scale))),
            0,
            60 * scale,
            limit=500,
        )
        assert float(laplace_characteristic_function(s, scale)) == pytest.approx(value, abs=1e-9)
    assert laplace_characteristic_function([0.0, 1e300], 1e10).tolist() == [1.0, 0.0]


def test_characteristic_function_of_a_sample(rng):
    s, n = np.array([0.2, 1.0, 4.0]), 100_000
    empirical = np.cos(np.outer(s, laplace(0.7, n, rng))).mean(axis=1)
    # A mean of cosines has standard deviation at most 1 / sqrt(n).
    np.testing.assert_allclose(empirical, laplace_characteristic_function(s, 0.7), atol=4 / math.sqrt(n))


def test_log_density_tail_and_quantile():
    x = np.array([-1000.0, -3.0, 0.0, 0.5, 20.0])
    density = laplace_log_density(x, 1.5)
    np.testing.assert_allclose(density[1:], stats.laplace.logpdf(x[1:], scale=1.5), rtol=1e-13)
    assert density[0] == pytest.approx(-1000 / 1.5 - math.log(3))  # scipy.stats: underflow further out
    assert float(laplace_log_density(1e5, 1.0)) == pytest.approx(-1e5 - math.log(2))
    assert float(laplace_tail(700.0, 1.0)) == pytest.approx(0.5 * math.exp(-700), rel=1e-12)
    assert float(laplace_tail(-2.0, 1.0)) == pytest.approx(1 - 0.5 * math.exp(-2))
    for q in (1e-12, 0.3, 0.5, 0.99):
        point = laplace_quantile(q, 2.5)
        assert float(laplace_tail(point, 2.5)) == pytest.approx(1 - q, rel=1e-9)
    assert float(laplace_quantile(1e-300, 1.0)) == pytest.approx(math.log(2e-300))


def test_exact_laws_refuse():
    for function in (laplace_characteristic_function, laplace_log_density, laplace_tail):
        with pytest.raises(ValueError, match="scale must be positive"):
            function(1.0, 0.0)
    for bad in (0.0, 1.0, -0.1, [0.5, 1.2]):
        with pytest.raises(ValueError, match="probability must lie strictly"):
            laplace_quantile(bad, 1.0)


# --- symmetric matrices -----------------------------------------------------------------------------


def test_goe_entries_have_the_laws_that_are_said(rng):
    sigma, d = 0.7, 3
    draws = np.stack([goe(sigma, d, rng) for _ in range(20_000)])
    np.testing.assert_array_equal(draws, draws.transpose(0, 2, 1))
    for i in range(d):
        for j in range(i, d):
            scale = sigma * (math.sqrt(2) if i == j else 1.0)
            assert stats.kstest(draws[:, i, j], stats.norm(scale=scale).cdf).pvalue > 1e-3
            assert stats.kstest(draws[:, i, j], stats.norm(scale=1.06 * scale).cdf).pvalue < 1e-3
    upper = draws[:, *np.triu_indices(d)]
    assert np.abs(np.corrcoef(upper, rowvar=False) - np.eye(6)).max() < 0.03


def test_goe_is_isotropic_in_the_frobenius_norm(rng):
    """||M||_F^2 / (2 sigma^2) is chi-squared with d (d + 1) / 2 degrees: what the Gaussian mechanism needs."""
    d, sigma = 4, 2.5
    norms = [float((goe(sigma, d, rng) ** 2).sum()) / (2 * sigma**2) for _ in range(5_000)]
    assert stats.kstest(norms, stats.chi2(d * (d + 1) / 2).cdf).pvalue > 1e-3


def test_goe_shapes_and_reproducibility():
    one = goe(1, np.int64(1), np.random.default_rng(5))
    assert one.shape == (1, 1)
    assert one[0, 0] == pytest.approx(math.sqrt(2) * np.random.default_rng(5).normal())
    a, b = (goe(2.0, 6, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(goe(4.0, 6, np.random.default_rng(5)), 2 * a)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0.0, 2), ValueError, "sigma must be positive"),
        ((-1.0, 2), ValueError, "sigma must be positive"),
        ((math.nan, 2), ValueError, "sigma must be finite"),
        ((math.inf, 2), ValueError, "sigma must be finite"),
        ((True, 2), TypeError, "sigma must be a real number"),
        (([1.0], 2), TypeError, "sigma must be a real number"),
        ((1.0, 0), ValueError, "dimension must be at least 1"),
        ((1.0, 2.0), TypeError, "dimension must be an integer"),
        ((1.0, True), TypeError, "dimension must be an integer"),
    ],
)
def test_goe_refuses_before_it_draws(arguments, error, message, rng):
    before = rng.bit_generator.state
    with pytest.raises(error, match=message):
        goe(*arguments, rng)
    assert rng.bit_generator.state == before
    with pytest.raises(TypeError, match="rng"):
        goe(1.0, 2, 7)


# --- norm-exponential noise ---------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [1, 2, 7])
def test_norm_exponential_has_a_gamma_length_and_a_uniform_direction(dimension, rng):
    scale = 0.7
    draws = norm_exponential(scale, dimension, rng, draws=40_000)
    lengths = np.linalg.norm(draws, axis=1)
    assert stats.kstest(lengths, stats.gamma(dimension, scale=scale).cdf).pvalue > 1e-3
    assert stats.kstest(lengths, stats.gamma(dimension, scale=1.06 * scale).cdf).pvalue < 1e-3
    if dimension > 1:
        # A coordinate of a uniform direction: its square is beta distributed, and independent of the length.
        squares = np.square(draws[:, -1] / lengths)
        assert stats.kstest(squares, stats.beta(0.5, 0.5 * (dimension - 1)).cdf).pvalue > 1e-3
        assert abs(np.corrcoef(squares, lengths)[0, 1]) < 0.02
    assert np.abs(draws.mean(axis=0)).max() < 5 * scale * math.sqrt((dimension + 1) / 40_000)


def test_norm_exponential_is_laplace_noise_in_one_dimension(rng):
    draws = norm_exponential(2.0, 1, rng, draws=40_000)[:, 0]
    assert stats.kstest(draws, stats.laplace(scale=2.0).cdf).pvalue > 1e-3


def test_norm_exponential_follows_its_density(rng):
    """A disc away from the origin: its probability under the density exp(-|x| / b) / (2 pi b^2), by quadrature."""
    scale, centre, radius = 1.5, 2.0, 1.2
    law, _ = integrate.dblquad(
        lambda a, r: (
            r
            * math.exp(-math.sqrt(centre**2 + r * r + 2 * centre * r * math.cos(a)) / scale)
            / (2 * math.pi * scale**2)
        ),
        0,
        radius,
        0,
        2 * math.pi,
    )
    draws = norm_exponential(scale, 2, rng, draws=200_000)
    share = np.mean(np.linalg.norm(draws - [0.0, centre], axis=1) < radius)
    assert share == pytest.approx(law, abs=4 * math.sqrt(law / 200_000))


def test_norm_exponential_radius():
    for dimension in (1, 3, 101):
        for tail in (1e-12, 0.05, 0.5, 0.99):
            point = norm_exponential_radius(tail, 2.5, dimension)
            assert float(norm_exponential_tail(point, 2.5, dimension)) == pytest.approx(tail, rel=1e-9)
    assert float(norm_exponential_tail(700.0, 1.0, 1)) == pytest.approx(math.exp(-700), rel=1e-10)
    assert float(norm_exponential_radius(0.25, 3.0, 1)) == pytest.approx(3 * math.log(4))
    assert norm_exponential_tail([0.0, -1.0], 1.0, 4).tolist() == [1.0, 1.0]


def test_norm_exponential_shapes_and_reproducibility():
    assert norm_exponential(1.0, 4, np.random.default_rng(5)).shape == (4,)
    assert norm_exponential(1.0, np.int64(4), np.random.default_rng(5), draws=1).shape == (1, 4)
    one, again = (norm_exponential(2.0, 3, np.random.default_rng(5), draws=6) for _ in range(2))
    np.testing.assert_array_equal(one, again)
    np.testing.assert_allclose(norm_exponential(4.0, 3, np.random.default_rng(5), draws=6), 2 * one)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"scale": 0.0}, ValueError, "scale must be positive"),
        ({"scale": -1.0}, ValueError, "scale must be positive"),
        ({"scale": math.nan}, ValueError, "scale must be finite"),
        ({"scale": math.inf}, ValueError, "scale must be finite"),
        ({"scale": 1e200}, ValueError, "scale must lie between"),
        ({"scale": [1.0]}, TypeError, "scale must be a real number"),
        ({"dimension": 0}, ValueError, "dimension must be at least 1"),
        ({"dimension": 2.0}, TypeError, "dimension must be an integer"),
        ({"draws": 0}, ValueError, "draws must be at least 1"),
        ({"draws": 2.5}, TypeError, "draws must be an integer"),
    ],
)
def test_norm_exponential_refuses_before_it_draws(arguments, error, message, rng):
    before = rng.bit_generator.state
    with pytest.raises(error, match=message):
        norm_exponential(**{"scale": 1.0, "dimension": 3, "rng": rng, **arguments})
    assert rng.bit_generator.state == before
    with pytest.raises(TypeError, match="rng"):
        norm_exponential(1.0, 2, 7)


def test_norm_exponential_laws_refuse():
    for bad in (0.0, 1.0, [0.5, -0.1], math.nan):
        with pytest.raises(ValueError, match="tail must"):
            norm_exponential_radius(bad, 1.0, 2)
    for function in (norm_exponential_radius, norm_exponential_tail):
        with pytest.raises(ValueError, match="scale must be positive"):
            function(0.5, -1.0, 2)
        with pytest.raises(ValueError, match="dimension must be at least 1"):
            function(0.5, 1.0, 0)
