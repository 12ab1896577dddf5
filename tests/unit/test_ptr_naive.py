"""Noise in proportion to the local sensitivity: the exact divergence, and that it does not protect."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate

from adaptive_dp.ptr.naive import laplace_pair_delta, naive_noise


@pytest.mark.parametrize("shift", [0.0, 0.3, 2.0, -1.0])
@pytest.mark.parametrize(("scale", "other"), [(1.0, 1.0), (0.2, 1.0), (1.0, 0.2), (3.0, 2.9)])
@pytest.mark.parametrize("epsilon", [-0.5, 0.0, 0.4, 1.5])
def test_divergence_is_that_of_quadrature(shift, scale, other, epsilon):
    def excess(t):
        p = math.exp(-abs(t) / scale) / (2 * scale)
        q = math.exp(-abs(t - shift) / other) / (2 * other)
        return max(0.0, p - math.exp(epsilon) * q)

    grid = np.union1d(np.linspace(-80, 80, 33), [0.0, shift])
    exact = sum(integrate.quad(excess, a, b, limit=200)[0] for a, b in pairwise(grid))
    found = laplace_pair_delta(shift=shift, scale=scale, other_scale=other, epsilon=epsilon)
    assert found == pytest.approx(exact, abs=1e-6)


def test_equal_scales_are_the_laplace_mechanism():
    assert laplace_pair_delta(shift=1.0, scale=2.0, other_scale=2.0, epsilon=0.5) == pytest.approx(
        0.0, abs=1e-15
    )
    assert laplace_pair_delta(shift=1.0, scale=1.0, other_scale=1.0, epsilon=0.0) == pytest.approx(
        1 - math.exp(-0.5), abs=1e-12
    )


def test_the_kinder_the_data_the_more_the_noise_tells():
    table = naive_noise([1.0, 0.5, 0.1, 0.01, 1e-4], epsilon=1.0)
    assert table["delta"].iloc[0] == pytest.approx(0.0, abs=1e-12)
    assert table["delta"].is_monotonic_increasing
    assert table["delta"].iloc[-1] > 0.99
    assert table["delta_ten"].iloc[-1] > 0


@pytest.mark.parametrize(
    "bad", [{"scale": 0.0}, {"other_scale": -1.0}, {"epsilon": math.nan}, {"shift": math.inf}]
)
def test_bad_input_is_named(bad):
    good = {"shift": 1.0, "scale": 1.0, "other_scale": 2.0, "epsilon": 1.0}
    with pytest.raises(ValueError, match=next(iter(bad))):
        laplace_pair_delta(**{**good, **bad})
