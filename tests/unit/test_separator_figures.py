"""Frames and figures of the sections on RSPM and on the comparison."""

import numpy as np
import pandas as pd
import pytest

from adaptive_dp.oracle_perturbation.comparison import accuracy_table, signs_problem
from adaptive_dp.oracle_perturbation.separator_figures import draw_accuracy, draw_printed_noise
from adaptive_dp.oracle_perturbation.separator_gaussian import smallest_separator_sigma
from adaptive_dp.oracle_perturbation.separator_tables import (
    exact_table,
    noise_table,
    powers,
    printed_noise_frame,
    range_table,
)


def test_weights_of_each_noise():
    table = noise_table((2, 46, 1000), epsilon=0.5, delta=1e-8)
    np.testing.assert_allclose(table["laplace"], [8.0, 184.0, 4000.0])
    np.testing.assert_allclose(table["box"], [6.0, 94.0, 2002.0])
    sigma = smallest_separator_sigma(46, epsilon=0.5, delta=1e-8, gap=0.0)
    assert table["gaussian"][1] == pytest.approx(sigma * np.sqrt(2 / np.pi))
    # The printed noise is larger than it must be for few separators and too small for many.
    assert (table["printed"] > table["gaussian"]).tolist() == [True, True, False]


def test_ranges_are_ordered():
    table = range_table((1e-3, 1e-8))
    assert (table["length"] < table["separators"]).all()
    assert (table["separators"] < table["refuted"]).all()
    assert table["refuted"].tolist() == [146, 357]


def test_exact_losses_are_epsilon():
    table = exact_table((0.5, 2.0))
    for noise in ("laplace", "box", "values"):
        np.testing.assert_allclose(table[noise], table["epsilon"], rtol=1e-6)


def test_powers_are_different_integers():
    assert powers(1, 100, 50) == sorted(set(powers(1, 100, 50)))
    assert (powers(3, 700, 9)[0], powers(3, 700, 9)[-1]) == (3, 700)


def test_figure_of_the_printed_noise_says_where_it_fails():
    frame = printed_noise_frame(powers(20, 2000, 25), epsilon=0.1, delta=1e-8)
    assert (frame["parity"] <= frame["separators"]).all()
    assert (frame["separators"] <= frame["length"]).all()
    picture = draw_printed_noise(frame, claimed=1e-8, name="test-printed")
    first = int(frame.loc[frame["parity"] > 1e-8, "m"].iloc[0])
    assert f"attained: above it from m = {first} on" in picture.alt
    quiet = draw_printed_noise(frame[frame["m"] < 300], claimed=1e-8, name="test-printed")
    assert "attained: never above it" in quiet.alt


def test_figure_of_the_accuracies_names_all_mechanisms():
    problem = signs_problem(60, 3, np.random.default_rng(1))
    frame = accuracy_table(problem, [0.2, 0.5, 1.0], draws=20, rng=np.random.default_rng(2))
    picture = draw_accuracy(frame, name="test-accuracy")
    for name in ("exponential mechanism", "noise on values", "RSPM, box noise", "OPDisc, norm noise"):
        assert name in picture.alt
    assert isinstance(frame, pd.DataFrame)
    assert "At epsilon 0.5" in picture.alt
