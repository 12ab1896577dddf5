"""Optimisers that count gradients: right answers, honest counts, and bounds that hold."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from adaptive_dp.losses import LogisticLoss, Loss, SquaredLoss
from adaptive_dp.objective_perturbation import optimisers
from adaptive_dp.objective_perturbation.optimisation_cost import (
    StartingPoint,
    accelerated_bound,
    descent_bound,
    evaluations_table,
    exponents,
    perturbed_problem,
    sag_bound,
)
from adaptive_dp.objective_perturbation.optimisers import (
    FiniteSum,
    accelerated_gradient,
    gradient_descent,
    sag_runs,
    stochastic_average_gradient,
)


class CountingLoss(LogisticLoss):
    """Logistic loss that counts the derivatives it was asked for."""

    def __init__(self):
        object.__setattr__(self, "calls", [0])

    def derivative(self, prediction, label):
        found = super().derivative(prediction, label)
        self.calls[0] += found.size
        return found


def problem(rows=60, seed=0, **kwargs):
    return perturbed_problem(rows, rng=np.random.default_rng(seed), **kwargs)


METHODS = {
    "descent": lambda f, gamma, **k: gradient_descent(f, gamma=gamma, **k),
    "accelerated": lambda f, gamma, **k: accelerated_gradient(f, gamma=gamma, **k),
    "vectors": lambda f, gamma, **k: stochastic_average_gradient(
        f, gamma=gamma, rng=np.random.default_rng(3), **k
    ),
    "scalars": lambda f, gamma, **k: stochastic_average_gradient(
        f, gamma=gamma, rng=np.random.default_rng(3), memory="scalars", **k
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_the_minimiser_is_found_and_every_gradient_counted(name):
    loss = CountingLoss()
    plain = problem(layout="spread")
    f = FiniteSum(plain.features, plain.labels, loss, plain.lam, plain.linear)
    run = METHODS[name](f, 1e-5)
    counted = loss.calls[0]
    if name in ("vectors", "scalars"):
        counted -= f.rows  # the start's gradient and its parts come from the same n derivatives
    assert run.converged
    assert run.evaluations == counted
    assert run.gradient_norm == pytest.approx(np.linalg.norm(f.gradient(run.theta)), rel=1e-6)
    assert run.gradient_norm <= 1e-5
    assert np.linalg.norm(run.theta - f.minimum().theta) <= 1e-5 / f.lam
    assert run.history["evaluations"].is_monotonic_increasing
    assert tuple(run.history.iloc[-1]) == (run.evaluations, run.gradient_norm)
    assert (run.history["gradient_norm"][:-1] > 1e-5).all()


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_runs_out_of_gradients_says_so(name):
    f = problem()
    run = METHODS[name](f, 1e-9, limit=5 * f.rows)
    assert not run.converged
    assert run.gradient_norm > 1e-9
    assert run.evaluations == 5 * f.rows
    at_once = METHODS[name](f, 1e9)
    assert at_once.converged
    assert at_once.evaluations == f.rows
    assert (at_once.theta == 0).all()


def test_a_quadratic_is_followed_exactly():
    # n = 1, x = e_1: f = (theta_1 - 1)^2 / 2 + lam |theta|^2 / 2 + b'theta, L = 1 + lam.
    f = FiniteSum([[1.0, 0.0]], [1.0], SquaredLoss(), 0.25, [0.0, 2.0])
    run = gradient_descent(f, gamma=0.5, start=[3.0, 0.0])
    theta, tests = np.array([3.0, 0.0]), []
    while True:
        gradient = np.array([theta[0] - 1, 0.0]) + 0.25 * theta + [0.0, 2.0]
        tests.append(float(np.linalg.norm(gradient)))
        if tests[-1] <= 0.5:
            break
        theta = theta - gradient / 1.25
    assert run.history["gradient_norm"].tolist() == pytest.approx(tests, rel=1e-12)
    assert f.minimum().theta == pytest.approx([0.8, -8.0], rel=1e-9)


def test_sag_takes_the_steps_of_its_definition():
    f = problem(7, columns=3)
    n, step = f.rows, 1 / (16 * f.smoothness)
    run = stochastic_average_gradient(f, gamma=1e-9, rng=np.random.default_rng(11), limit=3 * n)
    draws = np.random.default_rng(11).integers(n, size=(n, 1))[:, 0]

    def part(i, theta):
        slope = f.loss.derivative(f.features[i] @ theta, f.labels[i])
        return slope * f.features[i] + (f.lam * theta + f.linear) / n

    theta = np.zeros(3)
    parts = np.array([part(i, theta) for i in range(n)])
    parts -= parts.mean(axis=0)
    for i in draws:
        parts[i] = part(i, theta)
        theta = theta - step * parts.sum(axis=0)
    assert run.evaluations == 3 * n
    assert run.theta == pytest.approx(theta, rel=1e-12)


def test_runs_side_by_side_are_independent_and_each_stops_for_itself():
    f = problem(40)
    runs = sag_runs(f, gamma=1e-3, runs=5, rng=np.random.default_rng(0))
    assert len({tuple(run.theta) for run in runs}) == 5
    for run in runs:
        assert run.converged
        assert (run.history["gradient_norm"].iloc[:-1] > 1e-3).all()
        assert run.gradient_norm == pytest.approx(np.linalg.norm(f.gradient(run.theta)), rel=1e-9)


@pytest.mark.parametrize("layout", ["flat", "spread"])
@pytest.mark.parametrize("lam", [0.05, 0.5, 20.0])
@pytest.mark.parametrize("gamma", [1e-1, 1e-4])
def test_the_bounds_hold(layout, lam, gamma):
    f = problem(30, seed=2, layout=layout, lam=lam)
    start = StartingPoint.of(f)
    descent = gradient_descent(f, gamma=gamma)
    assert descent.evaluations <= descent_bound(start, gamma=gamma)
    assert accelerated_gradient(f, gamma=gamma).evaluations <= accelerated_bound(start, gamma=gamma)
    # Each step of descent shortens the gradient by 1 - lam / L at least.
    norms = descent.history["gradient_norm"].to_numpy()
    assert (norms[1:] <= norms[:-1] * (1 - 1 / start.condition) * (1 + 1e-9)).all()
    if lam >= 0.5:
        bound = sag_bound(start, gamma=gamma, failure=0.05)
        runs = sag_runs(f, gamma=gamma, runs=10, rng=np.random.default_rng(1))
        assert max(run.evaluations for run in runs) <= bound


def test_the_bound_of_descent_is_sharp_and_the_others_are_finite():
    # Without data in a direction, descent moves along it exactly as the bound says.
    f = FiniteSum([[0.0, 1.0]] * 50, [1.0, -1.0] * 25, LogisticLoss(), 0.5, [5.0, 0.0])
    bound = descent_bound(StartingPoint.of(f), gamma=1e-4)
    assert bound - f.rows <= gradient_descent(f, gamma=1e-4).evaluations <= bound
    still = StartingPoint(rows=10, smoothness=2.0, lam=2.0, gap=1.0, distance=1.0, gradient_norm=2.0)
    assert descent_bound(still, gamma=1.0) == 20
    assert descent_bound(replace(still, gradient_norm=0.5), gamma=1.0) == 10
    assert sag_bound(still, gamma=1e-3, failure=0.1) % 10 == 0


def test_gradients_bound_the_gap_from_below():
    f = problem(50, layout="spread")
    best = f.minimum()
    for theta in np.random.default_rng(4).standard_normal((50, 5)):
        gap, norm = f.value(theta) - best.value, np.linalg.norm(f.gradient(theta))
        assert norm**2 <= 2 * f.smoothness * gap * (1 + 1e-9)
        assert gap <= norm**2 / (2 * f.lam) * (1 + 1e-9)


def test_the_powers_of_n_where_lam_alone_curves_a_direction():
    table = evaluations_table((50, 100, 200, 400), runs=3, rng=np.random.default_rng(0))
    assert table["converged"].all()
    assert (table["high"] <= table["bound"]).all()
    assert ((table["low"] <= table["evaluations"]) & (table["evaluations"] <= table["high"])).all()
    powers = exponents(table).set_index("method")
    assert (powers["measured"] - powers["claimed"]).abs().max() < 0.2
    assert (powers["bound"] - powers["claimed"]).abs().max() < 0.1
    assert ((powers["low"] < powers["measured"]) & (powers["measured"] < powers["high"])).all()
    last = table[table["n"] == 400].set_index("method")["evaluations"]
    assert last["SAG"] < last["accelerated"] < last["gradient descent"] / 5


class Cornered(LogisticLoss):
    curvature = math.inf


def test_bad_input_is_refused():
    f = problem(10)
    with pytest.raises(ValueError, match="gamma must be positive, got 0"):
        gradient_descent(f, gamma=0.0)
    with pytest.raises(TypeError, match="rng"):
        stochastic_average_gradient(f, gamma=1.0, rng=3)
    with pytest.raises(ValueError, match="memory must be one of 'vectors', 'scalars'"):
        sag_runs(f, gamma=1.0, runs=1, rng=np.random.default_rng(0), memory="none")
    with pytest.raises(ValueError, match=r"start must have shape \(5,\)"):
        accelerated_gradient(f, gamma=1.0, start=[0.0])
    with pytest.raises(ValueError, match="lam must be positive"):
        FiniteSum([[1.0]], [1.0], LogisticLoss(), 0.0)
    with pytest.raises(ValueError, match=r"linear must have shape \(1,\)"):
        FiniteSum([[1.0]], [1.0], LogisticLoss(), 1.0, [1.0, 2.0])
    with pytest.raises(ValueError, match="one entry a row"):
        FiniteSum([[1.0]], [1.0, -1.0], LogisticLoss(), 1.0)
    with pytest.raises(ValueError, match="finite curvature"):
        FiniteSum([[1.0]], [1.0], Cornered(), 1.0)
    with pytest.raises(TypeError, match="loss must be a Loss"):
        FiniteSum([[1.0]], [1.0], "logistic", 1.0)
    with pytest.raises(ValueError, match="smoothness must be at least lam"):
        StartingPoint(rows=1, smoothness=1.0, lam=2.0, gap=0.0, distance=0.0, gradient_norm=0.0)
    with pytest.raises(ValueError, match="at least 3 sizes"):
        exponents(evaluations_table((20,), runs=2, rng=np.random.default_rng(0)))
    assert issubclass(Cornered, Loss)


def test_labels_and_rows_that_make_nonsense_are_refused():
    with pytest.raises(ValueError, match=r"labels must be -1 or \+1"):
        FiniteSum([[1.0], [2.0]], [0.0, 1.0], LogisticLoss(), 1.0)
    with pytest.raises(ValueError, match="features must be so small"):
        FiniteSum([[1e200]], [1.0], LogisticLoss(), 1.0)


@pytest.mark.parametrize("method", [gradient_descent, accelerated_gradient])
def test_a_tolerance_below_rounding_ends_where_nothing_moves(method):
    f = problem(20, lam=20.0)
    with pytest.raises(ValueError, match="gamma must lie between"):
        method(f, gamma=1e-300)
    run = method(f, gamma=1e-90, limit=10_000_000)
    assert not run.converged
    assert run.evaluations < 10_000_000
    assert run.gradient_norm < 1e-10


def test_a_long_history_is_thinned_and_keeps_its_ends(monkeypatch):
    f = problem(20, lam=0.05)
    whole = gradient_descent(f, gamma=1e-6).history
    monkeypatch.setattr(optimisers, "LONGEST_HISTORY", 50)
    run = gradient_descent(f, gamma=1e-6)
    assert len(run.history) <= 52 < len(whole)
    assert run.evaluations == whole["evaluations"].iloc[-1]
    kept = whole.merge(run.history)
    assert len(kept) == len(run.history)  # the same numbers
    for end in (0, -1):
        assert run.history.iloc[end].tolist() == whole.iloc[end].tolist()


def test_bounds_of_tiny_tolerances_are_numbers_or_refused():
    start = StartingPoint(rows=10, smoothness=100.0, lam=1.0, gap=1.0, distance=1.0, gradient_norm=2.0)
    for bound in (descent_bound, accelerated_bound, lambda s, gamma: sag_bound(s, gamma=gamma, failure=0.05)):
        assert bound(start, gamma=1e-99) > bound(start, gamma=1e-9)
        with pytest.raises(ValueError, match="gamma must lie between"):
            bound(start, gamma=1e-170)
    far = StartingPoint(rows=10, smoothness=1e90, lam=1.0, gap=1.0, distance=1e90, gradient_norm=1.0)
    with pytest.raises(ValueError, match="gamma is so small"):
        accelerated_bound(far, gamma=1e-100)
    with pytest.raises(ValueError, match="gamma is so small"):
        sag_bound(far, gamma=1e-100, failure=0.05)


def test_simulated_problems_refuse_before_drawing():
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    with pytest.raises(ValueError, match="lam must be positive"):
        perturbed_problem(10, lam=-1.0, rng=rng)
    assert rng.bit_generator.state == state


def test_tables_without_sizes_are_refused():
    for table in (pd.DataFrame(), pd.DataFrame(columns=["n", "method", "evaluations", "logarithm", "bound"])):
        with pytest.raises(ValueError, match="table must be one of evaluations_table"):
            exponents(table)
    with pytest.raises(TypeError, match="table must be a DataFrame"):
        exponents([])
