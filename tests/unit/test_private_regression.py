"""Private logistic regression beside the discrete mechanisms: steps, sensitivities, accounting, tuning."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from adaptive_dp.accounting import GaussianCurve, compose_gaussian, gaussian_delta
from adaptive_dp.datasets import Dataset
from adaptive_dp.objective_perturbation.calibration import calibrate_approximate
from adaptive_dp.objective_perturbation.dp_sgd import train
from adaptive_dp.oracle_perturbation import private_regression as regression
from adaptive_dp.oracle_perturbation import regression_tuning as tuning
from adaptive_dp.oracle_perturbation.private_regression import (
    Descent,
    Minibatch,
    accuracy,
    averaged_dp_sgd,
    descent_guarantee,
    group_of_two,
    noisy_descent,
    noisy_descent_runs,
    objective_perturbation_replace_one,
)
from adaptive_dp.privacy import Domain, Neighbours, Release

SHORT = Descent(1.0, 30, 4.0)
SMALL = Minibatch(1.0, 20, 2, 1.0)
EASY = {"epsilon": 1.0, "delta": 1e-5}


def people(rows: int = 200, columns: int = 3, seed: int = 0, bound: float = 2.0) -> Dataset:
    """Records on a coarse grid, so that many repeat, with labels that a halfspace nearly explains."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, size=(rows, columns)) / 1.0
    y = np.where(X @ np.arange(1, columns + 1) + rng.normal(size=rows) > 0, 1.0, -1.0)
    return Dataset(X, y, Domain("l2", bound, "sign"))


# --- accuracy -----------------------------------------------------------------------------------------


def test_ties_are_errors_for_both_labels() -> None:
    X, y = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], [1, -1, -1, 1]
    assert accuracy([1.0, 0.0], X, y) == 0.5
    np.testing.assert_array_equal(accuracy([[1.0, -1.0], [0.0, 0.0]], X, y), [1.0, 0.0])
    with pytest.raises(ValueError, match="must fit"):
        accuracy([1.0], X, y)


# --- noisy descent ------------------------------------------------------------------------------------


def plain_descent(data: Dataset, setting: Descent, noise: np.ndarray) -> np.ndarray:
    """The same in the plainest way: one record after the other, its gradient cut to the radius C."""
    theta, kept = np.zeros(data.columns), []
    for extra in noise:
        total = np.zeros(data.columns)
        for x, y in zip(data.features, data.labels, strict=True):
            gradient = -y * expit(-y * (x @ theta)) * x
            length = np.linalg.norm(gradient)
            total += gradient * min(1.0, setting.clip / length) if length > 0 else 0.0
        theta = theta - setting.rate / (data.rows * setting.clip) * (total + setting.clip * extra)
        kept.append(theta)
    return np.mean(kept[len(kept) // 2 :], axis=0)


@pytest.mark.parametrize("setting", [Descent(0.3, 8, 3.0), Descent(5.0, 7, 3.0), Descent(1.0, 1, 2.0)])
def test_descent_is_the_plain_iteration(setting: Descent) -> None:
    data = people(60)
    release = noisy_descent(data, **EASY, settings=setting, rng=np.random.default_rng(3))
    sigma = release.trace["sigma"]
    noise = sigma * np.random.default_rng(3).standard_normal((setting.steps, data.columns))
    np.testing.assert_allclose(release.value, plain_descent(data, setting, noise), rtol=1e-9)


def test_runs_side_by_side_are_single_runs() -> None:
    data, setting = people(50), Descent(1.0, 5, 1.0)
    weights, guarantee = noisy_descent_runs(
        data, **EASY, settings=setting, runs=3, rng=np.random.default_rng(4)
    )
    sigma = noisy_descent(data, **EASY, settings=setting, rng=np.random.default_rng(0)).trace["sigma"]
    noise = sigma * np.random.default_rng(4).standard_normal((setting.steps, 3, data.columns))
    for run in range(3):
        np.testing.assert_allclose(weights[run], plain_descent(data, setting, noise[:, run]), rtol=1e-9)
    assert guarantee.neighbours is Neighbours.REPLACE_ONE
    assert (guarantee.epsilon, guarantee.delta) == (1.0, 1e-5)


@given(seed=st.integers(0, 10_000), clip=st.floats(0.05, 3.0), size=st.floats(0.0, 20.0))
@settings(max_examples=40, deadline=None)
def test_replacing_a_record_moves_a_sum_by_at_most_two_clips(seed: int, clip: float, size: float) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.uniform(-1, 1, size=(6, 4)), rng.choice([-1.0, 1.0], 6)
    other, label = X.copy(), y.copy()
    other[2], label[2] = rng.uniform(-1, 1, 4), rng.choice([-1.0, 1.0])
    theta = size * rng.normal(size=(1, 4))
    domain = Domain("linf", 1.0, "sign")
    first, second = (
        regression._merged(Dataset(rows, signs, domain)).sums(theta, clip)
        for rows, signs in ((X, y), (other, label))
    )
    assert np.linalg.norm(first - second) <= 2 * (1 + 1e-12)  # in units of the clip


def test_two_clips_are_attained() -> None:
    """Opposite records of full gradient: the sensitivity is not 1 C, as it is for adding a record."""
    domain, theta = Domain("l2", 1.0, "sign"), np.zeros((1, 1))
    first, second = (
        regression._merged(Dataset([[1.0], [sign]], [1.0, 1.0], domain)).sums(theta, 0.1)
        for sign in (1.0, -1.0)
    )
    assert abs(first - second).item() == pytest.approx(2.0)


@pytest.mark.parametrize("steps", [1, 50, 300])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_descent_spends_what_its_steps_compose_to(steps: int, epsilon: float) -> None:
    data, delta = people(), 1e-8
    guarantee, sigma = descent_guarantee(
        data, epsilon=epsilon, delta=delta, settings=Descent(1.0, steps, 1.0)
    )
    composed = compose_gaussian(*[GaussianCurve(2 / sigma)] * steps)
    assert gaussian_delta(epsilon, composed.mu) == pytest.approx(delta, rel=1e-7)
    assert guarantee.curve is not None
    assert guarantee.curve.delta(epsilon) <= delta


def test_descent_agrees_with_another_accountant() -> None:
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    _, sigma = descent_guarantee(people(), epsilon=1.0, delta=1e-6, settings=Descent(1.0, 40, 1.0))
    found = pld.from_gaussian_mechanism(sigma / 2, value_discretization_interval=1e-4).self_compose(40)
    assert found.get_epsilon_for_delta(1e-6) == pytest.approx(1.0, abs=5e-3)


def test_descent_without_much_noise_is_logistic_regression() -> None:
    data = people(400)
    setting = Descent(10.0, 400, 40.0)
    release = noisy_descent(data, epsilon=1e6, delta=0.1, settings=setting, rng=np.random.default_rng(1))
    model = LogisticRegression(C=1e8, fit_intercept=False).fit(data.features, data.labels)
    np.testing.assert_allclose(release.value, model.coef_[0], rtol=0.02)


# --- minibatches --------------------------------------------------------------------------------------


def test_averages_of_dp_sgd_are_those_of_its_iterates(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every record in every batch and little noise, DP-SGD is descent; its average takes in all iterates."""
    data, minibatch = people(80), Minibatch(0.5, 80, 6, 2.0)
    monkeypatch.setattr(regression, "noise_multiplier", lambda **_: 1e-9)
    monkeypatch.setattr(regression, "run_guarantee", lambda *_, **__: "not looked at")
    release = averaged_dp_sgd(data, **EASY, settings=minibatch, rng=np.random.default_rng(0))
    ends = [
        train(
            data.features, data.labels, rates=[2.0 / 0.5], sigma=1e-9, clip=0.5, sampling=1.0, steps=steps,
            optimiser="sgd", rng=np.random.default_rng(0),
        )[0]
        for steps in range(1, 7)
    ]  # fmt: skip
    np.testing.assert_allclose(release.value, np.mean(ends, axis=0), atol=1e-7)


def test_dp_sgd_says_which_neighbours_it_means() -> None:
    release = averaged_dp_sgd(people(), **EASY, settings=SMALL, rng=np.random.default_rng(2))
    guarantee = release.guarantee
    assert guarantee.neighbours is Neighbours.ADD_REMOVE
    assert (guarantee.epsilon, guarantee.delta) == (1.0, 1e-5)
    assert guarantee.curve is not None
    assert guarantee.curve.epsilon(1e-5) == pytest.approx(1.0, rel=1e-6)
    again = averaged_dp_sgd(people(), **EASY, settings=SMALL, rng=np.random.default_rng(2))
    np.testing.assert_array_equal(release.value, again.value)


def test_dp_sgd_learns() -> None:
    data = people(2_000)
    setting = Minibatch(1.0, 100, 5, 2.0)
    release = averaged_dp_sgd(data, epsilon=8.0, delta=1e-5, settings=setting, rng=np.random.default_rng(5))
    best = LogisticRegression(C=100.0, fit_intercept=False).fit(data.features, data.labels).coef_[0]
    found, ceiling = (float(accuracy(w, data.features, data.labels)) for w in (release.value, best))
    assert found > ceiling - 0.03


# --- objective perturbation ---------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_group_of_two_is_what_two_steps_need(epsilon: float) -> None:
    half, level = group_of_two(epsilon, 1e-8)
    # Two steps: P(S) <= e^h Q(S) + l <= e^h (e^h R(S) + l) + l.
    assert 2 * half == pytest.approx(epsilon)
    assert math.exp(half) * level + level == pytest.approx(1e-8, rel=1e-12)
    with pytest.raises(ValueError, match="epsilon must be at most 100"):
        group_of_two(101.0, 1e-8)


def test_objective_perturbation_is_calibrated_for_the_group() -> None:
    data = people(300, bound=math.sqrt(3))
    release = objective_perturbation_replace_one(data, **EASY, rng=np.random.default_rng(6))
    assert release.guarantee.neighbours is Neighbours.REPLACE_ONE
    assert (release.guarantee.epsilon, release.guarantee.delta) == (1.0, 1e-5)
    assert "group privacy" in release.guarantee.source
    wanted = calibrate_approximate(
        epsilon=0.5, delta=1e-5 / (1 + math.exp(0.5)), slope=math.sqrt(3), curvature=0.75,
        sigma_out=regression.SIGMA_OUT, tau=regression.TAU, factor=regression.FACTOR,
    )  # fmt: skip
    assert release.trace["sigma"] == pytest.approx(wanted.sigma, rel=1e-12)
    assert release.trace["gradient_norm"] <= regression.TAU


def test_objective_perturbation_refuses_to_promise_more_than_its_calibration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = regression._calibration(0.5, 1e-5 / (1 + math.exp(0.5)), 2.0, 1.0)
    monkeypatch.setattr(regression, "_calibration", lambda *_: type(honest)(honest.sigma * 0.9, honest.lam))
    with pytest.raises(RuntimeError, match="the calibration promises"):
        objective_perturbation_replace_one(people(), **EASY, rng=np.random.default_rng(6))


# --- tuning -------------------------------------------------------------------------------------------


def test_tuning_returns_the_best_of_the_grid() -> None:
    data = people(500)
    grid = [Descent(1.0, 1, 1e-6), Descent(1.0, 30, 4.0)]
    # One tiny step from zero goes where the noise goes; thirty real ones do not.
    best, trials = tuning.tune_descent(
        data, epsilon=1.0, delta=1e-5, grid=grid, runs=3, rng=np.random.default_rng(7)
    )
    assert best == grid[int(trials["mean"].argmax())]
    assert list(trials.columns) == ["clip", "steps", "rate", "mean"]
    assert trials["steps"].tolist() == [1, 30]
    batches = [Minibatch(1.0, 50, 1, 1e-6), Minibatch(1.0, 50, 3, 2.0)]
    chosen, tried = tuning.tune_dp_sgd(
        data, epsilon=4.0, delta=1e-5, grid=batches, runs=2, rng=np.random.default_rng(8)
    )
    assert chosen == batches[int(tried["mean"].argmax())]
    assert list(tried.columns) == ["clip", "batch", "epochs", "rate", "mean"]


def test_grids_hold_what_the_text_says() -> None:
    assert Descent(1.0, 300, 16.0) in tuning.DESCENTS
    assert {m.batch for m in tuning.MINIBATCHES} == {256, 1024}
    assert len(set(tuning.DESCENTS)) == len(tuning.DESCENTS) == 24
    assert len(set(tuning.MINIBATCHES)) == len(tuning.MINIBATCHES) == 24


# --- bad input ----------------------------------------------------------------------------------------

MECHANISMS: dict[str, Any] = {
    "descent": lambda data, **more: noisy_descent(data, **{"settings": SHORT, **more}),
    "sgd": lambda data, **more: averaged_dp_sgd(data, **{"settings": SMALL, **more}),
    "objective": objective_perturbation_replace_one,
}


@pytest.mark.parametrize("name", list(MECHANISMS))
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"epsilon": 0.0}, ValueError, "epsilon must be positive"),
        ({"epsilon": math.nan}, ValueError, "epsilon must be finite"),
        ({"epsilon": "1"}, TypeError, "epsilon must be a real number"),
        ({"delta": 0.0}, ValueError, "delta must lie strictly between 0 and 1"),
        ({"delta": 1.0}, ValueError, "delta must lie strictly between 0 and 1"),
        ({"data": np.ones((3, 2))}, TypeError, "data must be a Dataset"),
        ({"data": Dataset([[0.5]], [0.5], Domain())}, ValueError, "data must have labels in"),
    ],
)
def test_bad_input_draws_nothing(
    name: str, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    rng = np.random.default_rng(1)
    before = rng.bit_generator.state
    arguments = {"data": people(), **EASY, "rng": rng, **change}
    with pytest.raises(error, match=message):
        MECHANISMS[name](arguments.pop("data"), **arguments)
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("name", list(MECHANISMS))
def test_seeds_are_no_generators(name: str) -> None:
    with pytest.raises(TypeError, match="rng must be a numpy"):
        MECHANISMS[name](people(), **EASY, rng=1)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Descent(0.0, 1, 1.0), ValueError, "clip must be positive"),
        (lambda: Descent(1.0, 0, 1.0), ValueError, "steps must be at least 1"),
        (lambda: Descent(1.0, 1.5, 1.0), TypeError, "steps must be an integer"),  # type: ignore[arg-type]
        (lambda: Descent(1.0, 1, 1e11), ValueError, "rate must be at most"),
        (lambda: Minibatch(1.0, 0, 1, 1.0), ValueError, "batch must be at least 1"),
        (lambda: Minibatch(1.0, 1, 0, 1.0), ValueError, "epochs must be at least 1"),
        (lambda: Minibatch(1.0, 1, 1, -1.0), ValueError, "rate must be positive"),
    ],
)
def test_settings_are_checked(build: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build()


def test_settings_of_the_wrong_kind_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(TypeError, match="settings must be a Descent"):
        noisy_descent(people(), **EASY, settings=SMALL, rng=rng)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="settings must be a Minibatch"):
        averaged_dp_sgd(people(), **EASY, settings=SHORT, rng=rng)  # type: ignore[arg-type]
    for grid in ([], [SMALL]):
        with pytest.raises(TypeError, match="grid must be a non-empty list of Descent"):
            tuning.tune_descent(people(), **EASY, grid=grid, runs=1, rng=rng)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="runs must be at least 1"):
        noisy_descent_runs(people(), **EASY, settings=SHORT, runs=0, rng=rng)


def test_huge_rates_do_not_overflow() -> None:
    release = noisy_descent(
        people(), epsilon=1e-3, delta=1e-9, settings=Descent(1e-90, 20, 1e10), rng=np.random.default_rng(0)
    )
    assert isinstance(release, Release)
    assert np.isfinite(release.value).all()
