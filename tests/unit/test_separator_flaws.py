"""RSPM as printed: each pair's probabilities are exact, agree with the program, and cannot be private."""

import numpy as np
import pytest
from scipy.special import ndtr

from adaptive_dp.oracle_perturbation.flaws_separators import (
    ANSWER,
    figure_three_answers,
    figure_three_data,
    figure_three_law,
    flaw_table,
    flipped_label_table,
    one_sided_answers,
    one_sided_law,
    too_few_draws_law,
)
from adaptive_dp.oracle_perturbation.problems import ThresholdProblem
from adaptive_dp.oracle_perturbation.rspm import separator_noise
from adaptive_dp.oracle_perturbation.separator_gaussian import printed_separator_sigma
from adaptive_dp.oracle_perturbation.separators import grid_separators
from adaptive_dp.oracle_perturbation.spaces import IntegerBall

RUNS = 200_000


def close(share, expected, runs=RUNS):
    return abs(share - expected) <= 5 * np.sqrt(max(expected * (1 - expected), 1e-12) / runs)


@pytest.mark.parametrize("records", [2, 3, 10])
@pytest.mark.parametrize("sigma", [0.7, 2.0, 42.5])
def test_law_of_figure_three_is_that_of_its_program(records, sigma):
    rng = np.random.default_rng([records, int(10 * sigma)])
    found = [
        (figure_three_answers(features, sigma, RUNS, rng) == ANSWER).all(axis=1).mean()
        for features in figure_three_data(records)
    ]
    on_d, on_other = figure_three_law(records, sigma)
    assert close(found[0], on_d)
    assert found[1] == on_other == 0


def test_pair_of_figure_three_replaces_one_record():
    on_d, on_other = figure_three_data(5)
    assert (on_d != on_other).any(axis=1).sum() == 1
    with pytest.raises(ValueError, match="records must be at least 2"):
        figure_three_data(1)


def test_numbers_of_the_errata():
    """Two records, delta = 1e-8, epsilon = 1: simulated there as .0032 and .0049. With many records twice as much."""
    few = flaw_table(records=2, epsilon=1.0, delta=1e-8).set_index("reading")["on_d"]
    many = flaw_table(records=15_682, epsilon=1.0, delta=1e-8).set_index("reading")["on_d"]
    assert few["Figure 3, m = 4"] == pytest.approx(0.00335, abs=1e-5)
    assert few["Figure 3, m = 2"] == pytest.approx(0.00475, abs=1e-5)
    for m in (2, 4):
        sigma = printed_separator_sigma(m, epsilon=1.0, delta=1e-8)
        assert many[f"Figure 3, m = {m}"] == pytest.approx(ndtr(1 / sigma) - 0.5, rel=1e-9)
        assert many[f"Figure 3, m = {m}"] > 1e5 * 1e-8
    assert (flaw_table(records=3, epsilon=1.0, delta=1e-8)["on_other"] == 0).all()


def test_real_separators_keep_the_pair_of_figure_three_within_epsilon():
    """The same two data sets under RSPM with Laplace noise: every answer's frequencies are within e^epsilon."""
    epsilon, space = 1.0, IntegerBall.signs(2)
    points, rng = space.points(), np.random.default_rng(5)
    features = grid_separators(points, 1)
    counts = []
    for x in figure_three_data(2):
        errors = ThresholdProblem(x, np.ones(2), space).errors(points)
        eta = separator_noise("laplace", 4, epsilon=epsilon).draw(rng, draws=RUNS)
        counts.append(np.bincount(np.argmin(errors + eta @ features, axis=1), minlength=len(points)))
    assert min(counts[0].min(), counts[1].min()) > 2000
    slack = 5 * np.sqrt(1 / counts[0] + 1 / counts[1])
    assert (np.abs(np.log(counts[0] / counts[1])) <= epsilon + slack).all()


def test_one_sided_errors_of_a_program_make_the_noise_one_sided():
    scale, rng = 2.0, np.random.default_rng(6)
    weights = rng.laplace(0, scale, RUNS)
    on_d, on_other = one_sided_answers((1, 0), weights), one_sided_answers((0, 1), weights)
    exact = one_sided_law(scale)
    assert close(on_d.mean(), exact[0])
    assert on_other.mean() == exact[1] == 0
    # The program is right where weights are positive, and minimises something else where they are negative.
    for losses in ((1, 0), (0, 1)):
        truth = (losses[1] + weights < losses[0]).astype(int)
        answers = one_sided_answers(losses, weights)
        assert (answers == truth)[weights > 0].all()
        assert not (answers == truth)[weights < -1].all() or losses == (1, 0)


def test_the_other_label_is_not_the_negative_loss_at_a_tie():
    table = flipped_label_table()
    assert table["sum"].tolist() == [1, 2, 1]
    assert table.set_index("w").loc[0, ["plus", "minus"]].tolist() == [1, 1]


def test_a_separator_without_noise_gives_the_record_away():
    sigma, rng = 3.0, np.random.default_rng(7)
    points = IntegerBall.signs(2).points()
    features = grid_separators(points, 1)[:3]  # d + 1 of the 4
    eta = rng.normal(0, sigma, (RUNS, 3))
    found = []
    for value in (-1, 0):
        losses = (points[:, 1] != value).astype(int)
        answers = points[np.argmin(losses + eta @ features, axis=1)]
        found.append((answers[:, 1] == -1).mean())
    exact = too_few_draws_law(sigma)
    assert close(found[0], exact[0])
    assert found[1] == exact[1] == 0
