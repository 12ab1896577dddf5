"""Approximate minima perturbation: certificate before noise, exactly two Gaussian vectors, the stated guarantee."""

from __future__ import annotations

import math
import traceback
import types

import numpy as np
import pytest
from scipy import stats

from adaptive_dp.datasets import Dataset
from adaptive_dp.losses import HuberLoss, LogisticLoss, SmoothDistanceLoss, SquaredLoss
from adaptive_dp.objective_perturbation import approximate_minima, perturbed_objective
from adaptive_dp.objective_perturbation import flaws_clipping as flaws
from adaptive_dp.objective_perturbation.approximate_minima import (
    CertificateError,
    approximate_minima_guarantee,
    approximate_minima_perturbation,
    objective_perturbation,
)
from adaptive_dp.objective_perturbation.calibration import Calibration, calibrate_approximate
from adaptive_dp.objective_perturbation.clipping import ClippedProblem
from adaptive_dp.objective_perturbation.composition import ApproximateMinimaCurve
from adaptive_dp.objective_perturbation.iyengar import iyengar_noise, iyengar_table, replacement_delta
from adaptive_dp.objective_perturbation.perturbed_objective import PerturbedObjective, minimise
from adaptive_dp.per_instance import perturb_objective
from adaptive_dp.privacy import Domain, Neighbours

ROOT = math.sqrt(2.0)
DOMAIN = Domain("l2", ROOT, "sign")
SCALES = Calibration(sigma=3.0, lam=2.0)
FIXED = {"calibration": SCALES, "tau": 0.01, "sigma_out": 0.15, "delta": 1e-5}


def people_of(rows=200, columns=4, seed=1, domain=DOMAIN):
    """Unit rows and a bias column; labels follow a linear rule with noise."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rows, columns - 1))
    features /= np.linalg.norm(features, axis=1)[:, np.newaxis]
    labels = np.where(features[:, 0] + 0.3 * rng.standard_normal(rows) > 0, 1.0, -1.0)
    return Dataset(np.hstack([features, np.ones((rows, 1))]), labels, domain)


PEOPLE = people_of()


class Recorder(np.random.Generator):
    """A generator that writes down what was asked of it."""

    def __init__(self, seed):
        super().__init__(np.random.PCG64(seed))
        self.calls = []

    def normal(self, loc=0.0, scale=1.0, size=None):
        self.calls.append((float(np.unique(loc)[0]), float(np.unique(scale)[0]), size))
        return super().normal(loc, scale, size)


def lazy(objective):
    """A solver that does not solve."""
    return np.zeros(objective.columns)


def run(rng=None, people=PEOPLE, loss=None, **changes):
    rng = np.random.default_rng(0) if rng is None else rng
    loss = LogisticLoss() if loss is None else loss
    return approximate_minima_perturbation(people, loss=loss, rng=rng, **(FIXED | changes))


# ---------------------------------------------------------------- noise


def test_exactly_two_gaussian_vectors_of_the_declared_scales():
    recorder = Recorder(5)
    release = run(recorder)
    assert recorder.calls == [(0.0, 3.0, (4,)), (0.0, 0.15, (4,))]
    again = np.random.default_rng(np.random.PCG64(5))
    b, output = again.normal(0.0, 3.0, 4), again.normal(0.0, 0.15, 4)
    assert recorder.bit_generator.state == again.bit_generator.state  # nothing else was drawn
    np.testing.assert_array_equal(release.trace["noise"], b)
    np.testing.assert_array_equal(release.value, release.trace["minimiser"] + output)
    objective = PerturbedObjective(
        ClippedProblem(LogisticLoss(), PEOPLE.features, PEOPLE.labels), SCALES.lam, b, FIXED["tau"]
    )
    assert objective.gradient_norm(release.trace["minimiser"]) == release.trace["gradient_norm"] <= 0.01


def test_the_draws_have_the_law_they_should():
    """Pooled over 200 releases; false alarms have probability 1e-6 each."""
    rng, draws = np.random.default_rng(11), []
    small = people_of(20, 3)
    for _ in range(200):
        release = run(rng, small)
        draws.append((release.trace["noise"] / 3.0, (release.value - release.trace["minimiser"]) / 0.15))
    for part in np.array(draws).transpose(1, 0, 2):
        assert stats.kstest(part.ravel(), "norm").pvalue > 1e-6
    pooled = np.array(draws)
    assert abs(np.corrcoef(pooled[:, 0].ravel(), pooled[:, 1].ravel())[0, 1]) < 4.9 / math.sqrt(600)


# ---------------------------------------------------------------- the certificate


def test_a_sloppy_solver_is_refused_before_the_output_noise():
    recorder = Recorder(7)
    with pytest.raises(
        CertificateError, match=r"solver lazy stopped before .* tau = 0.01: nothing is released"
    ) as caught:
        run(recorder, solver=lazy)
    assert recorder.calls == [(0.0, 3.0, (4,))]
    expected = np.random.default_rng(np.random.PCG64(7))
    expected.normal(0.0, 3.0, 4)
    assert recorder.bit_generator.state == expected.bit_generator.state
    assert caught.value.gradient_norm > 0.01
    assert f"{caught.value.gradient_norm:.3g}"[:4] not in str(caught.value)  # private: it depends on the data
    with pytest.raises(CertificateError):
        run(solver=lambda objective: minimise(objective) + 0.1)


@pytest.mark.parametrize(
    "answer",
    [
        lambda o: np.full(o.columns, np.nan),
        lambda o: np.zeros(o.columns + 1),
        lambda o: None,
        lambda o: 1 / 0,
    ],
    ids=["nan", "shape", "none", "raises"],
)
def test_nonsense_from_a_solver_is_refused_and_the_fallback_steps_in(answer):
    with pytest.raises(CertificateError):
        run(solver=answer)
    release = run(solver=answer, fallback=True)
    assert release.trace["fell_back"]
    np.testing.assert_array_equal(release.value, run().value)


def test_the_fallback_solves_the_same_objective():
    """No second b: the generator goes through the same two draws, and the release is that of the default solver."""
    recorder = Recorder(7)
    release = run(recorder, solver=lazy, fallback=True)
    assert [call[1] for call in recorder.calls] == [3.0, 0.15]
    assert release.trace["gradient_norm"] <= 0.01
    assert release.trace["fell_back"]
    assert not run().trace["fell_back"]
    np.testing.assert_array_equal(release.value, run(Recorder(7)).value)


def test_any_solver_that_meets_tau_will_do():
    def descent(objective):
        theta, norms = np.zeros(objective.columns), np.linalg.norm(objective.problem.features, axis=1)
        step = 1 / (objective.lam + 0.25 * float(norms @ norms))
        for _ in range(10_000):
            gradient = objective.gradient(theta)
            if np.linalg.norm(gradient) <= objective.tolerance:
                break
            theta = theta - step * gradient
        return types.SimpleNamespace(theta=theta, history=[])

    release = run(solver=descent)
    distance = np.linalg.norm(release.trace["minimiser"] - run(tau=1e-9).trace["minimiser"])
    assert 0 < distance <= 0.01 / SCALES.lam


def test_a_solver_cannot_change_the_noise():
    def vandal(objective):
        objective.noise[:] = 0.0

    with pytest.raises(CertificateError, match="raised ValueError"):
        run(solver=vandal)


@pytest.mark.parametrize("name", ["features", "labels", "slopes_allowed", "low", "high"])
def test_a_solver_cannot_change_the_problem_that_judges_it(name):
    """Without the locks an answer for other labels would be certified, and the fallback would solve for them too."""

    def vandal(objective):
        array = getattr(objective.problem, name)
        array[...] = -array
        return minimise(objective)

    with pytest.raises(CertificateError, match="raised ValueError"):
        run(solver=vandal, clip=0.3)
    release = run(solver=vandal, clip=0.3, fallback=True)
    np.testing.assert_array_equal(release.value, run(clip=0.3).value)


def test_the_sensitivity_of_the_output_step_is_attained():
    """Two solvers that err by tau / lam in opposite directions: the guarantee counts all of 2 tau / lam."""
    nobody = Dataset(np.zeros((1, 1)), [1.0], Domain("l2", 1.0, "sign"))
    shift = (1 - 1e-12) * FIXED["tau"] / SCALES.lam

    def erring(sign):
        return lambda objective: -objective.noise / objective.lam + sign * shift

    above, below = (
        run(np.random.default_rng(3), nobody, HuberLoss(1.0), solver=erring(sign)) for sign in (1, -1)
    )
    difference = float((above.value - below.value)[0])
    assert difference == pytest.approx(2 * FIXED["tau"] / SCALES.lam, rel=1e-10)
    curve = above.guarantee.curve
    assert curve.mu_out == pytest.approx(difference / FIXED["sigma_out"], rel=1e-10)
    assert curve.renyi(8.0) - curve.curve.renyi(8.0) == pytest.approx(
        2 * 0.01**2 * 8 / (0.15**2 * 2.0**2), rel=1e-12
    )
    with pytest.raises(CertificateError):
        run(
            np.random.default_rng(3),
            nobody,
            HuberLoss(1.0),
            solver=lambda o: -o.noise / o.lam + 1.001 * shift,
        )


# ---------------------------------------------------------------- clipping


def test_clipping_above_the_largest_gradient_changes_not_one_bit():
    for loss, bound in ((LogisticLoss(), ROOT), (HuberLoss(0.5), 0.5 * ROOT)):
        plain = run(loss=loss)
        for clip in (bound, 2 * bound):
            clipped = run(loss=loss, clip=clip)
            np.testing.assert_array_equal(clipped.value, plain.value)
            assert clipped.guarantee.epsilon == plain.guarantee.epsilon


def test_a_smaller_clip_costs_less_privacy_and_gives_unbounded_losses_a_guarantee():
    epsilons = [run(clip=clip).guarantee.epsilon for clip in (0.1, 0.5, 1.0)] + [run().guarantee.epsilon]
    assert (np.diff(epsilons) > 0).all()
    release = run(loss=SquaredLoss(), clip=0.5)
    assert math.isfinite(release.guarantee.epsilon)
    curve = release.guarantee.curve
    assert curve.curve.mu == pytest.approx(0.5 / 3.0)
    assert curve.curve.kappa == pytest.approx(2.0 / 2.0)  # f'' ||x||^2 = 2, not 1
    assert "Algorithm 7" in release.guarantee.source
    assert "Algorithm 16" in run().guarantee.source


def test_the_smoothness_counts_the_bias_column():
    assert run().guarantee.curve.curve.kappa == pytest.approx(0.5 / 2.0)


# ---------------------------------------------------------------- the guarantee


@pytest.mark.parametrize("analysis", ["reduced-renyi", "half-normal"])
def test_the_release_states_what_was_calibrated_for(analysis):
    scales = calibrate_approximate(
        epsilon=1.0, delta=1e-5, slope=ROOT, curvature=0.5, sigma_out=0.15, tau=0.01, analysis=analysis
    )
    guarantee = run(calibration=scales, analysis=analysis).guarantee
    assert guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    assert guarantee.epsilon <= 1.0 + 1e-9
    assert guarantee.delta == 1e-5
    assert guarantee.neighbours is Neighbours.ADD_REMOVE
    assert guarantee.kind == "ex-ante"
    assert guarantee.domain == DOMAIN


def test_analyses_in_order():
    scales = Calibration(6.8, 4.3)
    options = {"dimension": 4, "calibration": scales, "tau": 0.01, "sigma_out": 0.15, "delta": 1e-5}
    numerical, reduced, printed = (
        approximate_minima_guarantee(LogisticLoss(), DOMAIN, analysis=name, **options).epsilon
        for name in ("numerical", "reduced-renyi", "half-normal")
    )
    assert numerical < reduced < printed
    curve = ApproximateMinimaCurve(ROOT / 6.8, 0.5 / 4.3, 2 * 0.01 / (4.3 * 0.15))
    assert numerical == pytest.approx(curve.epsilon(1e-5), rel=1e-12)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"tau": 0.0}, ValueError, "tau must be positive"),
        ({"tau": math.nan}, ValueError, "tau must be finite"),
        ({"tau": 1e-14}, ValueError, "tau must be at least"),
        ({"sigma_out": 0.0}, ValueError, "sigma_out"),
        ({"sigma_out": "1"}, TypeError, "sigma_out"),
        ({"clip": 0.0}, ValueError, "clip must be positive"),
        ({"clip": -1.0}, ValueError, "clip must be positive"),
        ({"clip": math.inf}, ValueError, "clip must be finite"),
        ({"delta": 0.0}, ValueError, "delta"),
        ({"calibration": Calibration(0.0, 1.0)}, ValueError, "sigma"),
        ({"calibration": Calibration(1.0, math.inf)}, ValueError, "lam"),
        ({"calibration": (1.0, 2.0)}, TypeError, "calibration must be a Calibration"),
        ({"loss": SquaredLoss()}, ValueError, "clip must be given"),
        ({"loss": SmoothDistanceLoss()}, TypeError, "generalised linear"),
        ({"people": PEOPLE.features}, TypeError, "data must be a Dataset"),
        ({"people": people_of(domain=Domain("l2", ROOT, "real"))}, ValueError, "domain must have labels"),
        ({"fallback": "no"}, TypeError, "fallback must be True or False"),
        ({"solver": "lbfgs"}, TypeError, "solver must be callable"),
        ({"analysis": "hockey-stick"}, ValueError, "analysis"),
        ({"analysis": "half-normal", "calibration": Calibration(3.0, 0.4)}, ValueError, "kappa"),
    ],
)
def test_impossible_parameters_are_refused_before_any_noise(changes, error, match):
    recorder = Recorder(1)
    before = recorder.bit_generator.state
    with pytest.raises(error, match=match):
        run(recorder, **changes)
    assert recorder.bit_generator.state == before
    assert recorder.calls == []


def test_generators_only_and_records_inside_the_domain():
    for rng in (None, 3, np.random.RandomState(1)):
        with pytest.raises(TypeError, match="rng must be"):
            approximate_minima_perturbation(PEOPLE, loss=LogisticLoss(), rng=rng, **FIXED)
    with pytest.raises(ValueError, match="row 0 has l2 norm"):
        Dataset([[2.0]], [1.0], DOMAIN)


# ---------------------------------------------------------------- the solver


@pytest.mark.parametrize("clip", [None, 0.3, 0.02])
@pytest.mark.parametrize("loss", [LogisticLoss(), SquaredLoss(), HuberLoss(0.2)], ids=repr)
def test_both_branches_of_the_default_solver_reach_one_point(loss, clip, monkeypatch):
    noise = np.random.default_rng(9).normal(0, 3.0, PEOPLE.columns)
    objective = PerturbedObjective(
        ClippedProblem(loss, PEOPLE.features, PEOPLE.labels, clip), 0.7, noise, 1e-9
    )
    newton = minimise(objective)
    monkeypatch.setattr(perturbed_objective, "NEWTON_OPERATIONS", 0)
    quasi = minimise(objective)
    for theta in (newton, quasi):
        assert objective.gradient_norm(theta) <= 1e-9
    np.testing.assert_allclose(newton, quasi, atol=3e-9)


def test_hard_objectives_are_solved():
    """Huge noise on a tiny ridge, more columns than rows, and a tolerance below the rounding of the value."""
    rng = np.random.default_rng(2)
    features = rng.standard_normal((40, 120)) / 12
    labels = rng.choice([-1.0, 1.0], 40)
    for lam, sigma, tau in ((1e-4, 1e3, 1e-6), (1.0, 1.0, 1e-11), (1e3, 1.0, 1e-10)):
        for clip in (None, 0.05):
            problem = ClippedProblem(LogisticLoss(), features, labels, clip)
            objective = PerturbedObjective(problem, lam, rng.normal(0, sigma, 120), tau)
            assert objective.gradient_norm(minimise(objective)) <= tau


def test_an_impossible_tolerance_ends_in_an_error():
    problem = ClippedProblem(LogisticLoss(), PEOPLE.features, PEOPLE.labels)
    objective = PerturbedObjective(problem, 1.0, np.array([3.0, -2.0, 1.0, 5.0]), 1e-300)
    with pytest.raises(RuntimeError, match="double precision"):
        minimise(objective)


def test_derivatives_of_the_objective():
    rng = np.random.default_rng(4)
    problem = ClippedProblem(LogisticLoss(), PEOPLE.features, PEOPLE.labels, 0.4)
    objective = PerturbedObjective(problem, 0.7, rng.standard_normal(4), 0.1)
    theta, vector, h = rng.standard_normal(4), rng.standard_normal(4), 1e-5
    value, gradient = objective.value_and_gradient(theta)
    assert value == pytest.approx(objective.value(theta), rel=1e-14)
    np.testing.assert_array_equal(gradient, objective.gradient(theta))
    slope = (objective.value(theta + h * vector) - objective.value(theta - h * vector)) / (2 * h)
    assert float(gradient @ vector) == pytest.approx(slope, rel=1e-7)
    np.testing.assert_allclose(
        objective.hessian_operator(theta)(vector), objective.hessian(theta) @ vector, rtol=1e-12
    )


# ---------------------------------------------------------------- the exact mechanism


def test_objective_perturbation_is_the_exact_minimiser():
    first = objective_perturbation(
        PEOPLE, loss=LogisticLoss(), calibration=SCALES, delta=1e-5, rng=np.random.default_rng(0)
    )
    second = perturb_objective(
        PEOPLE, LogisticLoss(), lam=2.0, sigma=3.0, delta=1e-5, rng=np.random.default_rng(0)
    )
    np.testing.assert_array_equal(first.value, second.value)
    assert first.trace["gradient_norm"] <= 1e-10
    np.testing.assert_allclose(run(tau=1e-9).trace["minimiser"], first.value, atol=1e-9)
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    for loss, error in ((SquaredLoss(), ValueError), (SmoothDistanceLoss(), TypeError)):
        with pytest.raises(error, match="loss must"):
            objective_perturbation(PEOPLE, loss=loss, calibration=SCALES, delta=1e-5, rng=rng)
    assert rng.bit_generator.state == before


def test_a_refusal_prints_nothing_that_the_solver_saw():
    def talkative(objective):
        raise RuntimeError(f"gradient norm {objective.gradient_norm(np.zeros(4))!r}")

    with pytest.raises(CertificateError) as caught:
        run(solver=talkative)
    assert "gradient norm" not in "".join(traceback.format_exception(caught.value))
    assert "gradient norm" in str(caught.value.solver_error)
    assert math.isnan(caught.value.gradient_norm)


def kinked(seed=0, sigma=4.2, **changes):
    """Newton's method cycles between the kinks of a narrow Huber loss at this seed."""
    return objective_perturbation(
        **{"data": people_of(200, 10), "loss": HuberLoss(0.01), "calibration": Calibration(sigma, 0.04)}
        | changes,
        delta=1e-5,
        rng=np.random.default_rng(seed),
    )


def test_a_minimiser_between_kinks_is_found_and_never_refused():
    with pytest.raises(RuntimeError, match="Newton"):
        perturb_objective(
            people_of(200, 10),
            HuberLoss(0.01),
            lam=0.04,
            sigma=4.2,
            delta=1e-5,
            rng=np.random.default_rng(0),
        )
    for seed in range(12):
        release = kinked(seed)
        people = people_of(200, 10)
        problem = ClippedProblem(HuberLoss(0.01), people.features, people.labels)
        objective = PerturbedObjective(problem, 0.04, release.trace["noise"], 1e-10)
        assert objective.gradient_norm(release.value) <= 1e-10
        np.testing.assert_array_equal(
            release.trace["noise"], np.random.default_rng(seed).normal(0.0, 4.2, 10)
        )


def test_what_cannot_be_solved_is_refused_without_a_private_number(monkeypatch):
    def helpless(objective):
        raise RuntimeError(f"stopped at gradient norm {objective.gradient_norm(np.zeros(10))!r}")

    monkeypatch.setattr(approximate_minima, "minimise", helpless)
    with pytest.raises(CertificateError) as caught:
        kinked()
    text = "".join(traceback.format_exception(caught.value))
    assert "gradient norm" not in text
    assert "Newton" not in text


def test_noise_that_leaves_no_ten_digits_is_no_refusal():
    release = kinked(loss=LogisticLoss(), sigma=1e6)
    assert release.trace["gradient_norm"] <= 1e-13 * 1e6 * math.sqrt(10)


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"calibration": Calibration(0.0, 1.0)}, ValueError, "sigma must be positive"),
        ({"calibration": (1.0, 2.0)}, TypeError, "calibration must be a Calibration"),
        ({"domain": "l2"}, TypeError, "domain must be a Domain"),
        ({"domain": Domain("l2", 1.0, "real")}, ValueError, "domain must have labels"),
        ({"dimension": 0}, ValueError, "dimension"),
        ({"tau": 0.0}, ValueError, "tau"),
    ],
)
def test_the_guarantee_alone_refuses_as_the_mechanism_does(changes, error, match):
    arguments = {"domain": DOMAIN, "dimension": 4, **FIXED, **changes}
    with pytest.raises(error, match=match):
        approximate_minima_guarantee(LogisticLoss(), arguments.pop("domain"), **arguments)


# ---------------------------------------------------------------- Iyengar et al.


def test_iyengar_scales():
    """The scales that the authors' benchmark hands to its sampler at n = 2000, epsilon = 1 and delta = 1 / n^2."""
    noise = iyengar_noise(rows=2000, epsilon=1.0, delta=2.5e-7)
    assert noise.objective == pytest.approx(0.007312872343676223, rel=1e-12)
    assert noise.output == pytest.approx(0.018052554485734156, rel=1e-12)
    assert noise.calibration.sigma == pytest.approx(2000 * noise.objective)
    assert noise.tau == pytest.approx(1 / 2000)
    with pytest.raises(ValueError, match="objective_share"):
        iyengar_noise(rows=2000, epsilon=11.0, delta=1e-7)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"rows": 10**400}, "rows must be at most"),
        ({"rows": 10**200}, "rows must be at most"),
        ({"delta": 1e-320}, "delta must leave"),
        ({"delta": 1e-10, "output_share": 1e-299}, "delta must leave"),
        ({"epsilon": 1e-99}, r"output_share \* epsilon"),
        ({"slope": 1e60}, "lam, 2 curvature"),
        ({"gamma": 1e-100, "slope": 1e40}, "ordinary output noise"),
        ({"objective_share": 1 - 1e-17}, "objective_share"),
    ],
)
def test_iyengar_scales_that_overflow_are_refused(changes, match):
    with pytest.raises(ValueError, match=match):
        iyengar_noise(**{"rows": 2000, "epsilon": 1.0, "delta": 1e-7} | changes)


def test_iyengar_scales_hold_with_room_under_the_reduction():
    table = iyengar_table((1.0, 8.0))
    assert table["holds"].all()
    assert (table["replacement_delta"] < 1e-2 * table["delta"]).all()
    assert (table["epsilon_add_remove"] < 0.5 * table["epsilon"]).all()

    class Flat:
        def delta(self, epsilon):
            return 0.25 * math.exp(-epsilon)

        def epsilon(self, delta):
            return math.log(0.25 / delta)

    assert replacement_delta(Flat(), 2.0) == pytest.approx(0.25 * (1 + math.exp(-1)))


# ---------------------------------------------------------------- what was printed


def test_the_printed_loss_jumps():
    table = flaws.continuity_table().set_index("form")
    assert table.loc["printed", "jump"] == pytest.approx(0.4418, abs=5e-5)
    assert table.loc["printed", "least_bend"] < -0.4
    assert table.loc["corrected", "jump"] < 1e-8
    assert table.loc["corrected", "least_bend"] > -1e-13
    assert 0.2 < table.loc["corrected", "steepest_bend"] <= 0.25 + 1e-6
    mirrored = flaws.continuity_table(label=-1.0).set_index("form")
    assert mirrored.loc["printed", "jump"] == pytest.approx(table.loc["printed", "jump"], abs=1e-8)
    with pytest.raises(ValueError, match="clip must cut"):
        flaws.continuity_table(clip=2.0)


def test_the_printed_factor_is_another_one():
    table = flaws.factor_table()
    np.testing.assert_allclose(table["measured"], table["right"], rtol=1e-8)
    assert table.loc[0, "printed"] == pytest.approx(0.215, abs=5e-4)
    assert table.loc[0, "right"] == pytest.approx(0.392, abs=5e-4)
    assert (table["printed"] * table["gradient"] > 0.5 * (1 + 1e-9)).any()  # longer than C


def test_a_threshold_of_another_loss():
    table = flaws.mismatched_threshold_table(norm=0.8, clip=0.5).set_index("side")
    assert table.loc["inside", "gradient"] == pytest.approx(1.0)
    assert table["exceeded"].tolist() == [True, False]


def test_a_quarter_is_not_the_smoothness_of_rows_with_a_bias():
    table = flaws.smoothness_table((1.3, 3.0), epsilons=(0.1, 1.0))
    half, quarter = (table[table["curvature"] == c] for c in (0.5, 0.25))
    assert not half["violated"].any()
    worst = quarter[quarter["violated"]]
    assert set(worst["analysis"]) == {"hockey-stick", "reduced"}
    assert worst["delta"].max() > 100 * 1e-5


def test_the_printed_output_noise_is_a_quarter():
    table = flaws.output_noise_table().set_index("form")
    assert table.loc["printed", "rho"] == pytest.approx(4 * 0.01)
    assert table.loc["corrected", "rho"] == pytest.approx(0.01)
    assert table.loc["printed", "delta"] > 1000 * table.loc["printed", "allowed"]
    assert table.loc["corrected", "delta"] == pytest.approx(table.loc["corrected", "allowed"])


def test_a_retry_voids_the_guarantee():
    table = flaws.retry_example(cells=4001).set_index("mechanism")
    assert table.loc["fallback", "delta"] <= table.loc["fallback", "claimed"]
    assert table["violated"].to_dict() == {"fallback": False, "refusal": True, "retry": True}
    # With the record the solver fails where |theta| < 1, that is |b| < lam + 1; without it never.
    expected = 2 * stats.norm.cdf(1.5 / 5.0) - 1
    assert table.loc["retry", "fails_with"] == pytest.approx(expected, abs=2e-3)
    assert table.loc["retry", "fails_without"] == 0.0
    assert table.loc["refusal", "delta"] == pytest.approx(expected, abs=2e-3)
    # Without the record |theta| < 1 has probability P(|b| < lam): nearly all of it is a distinguishing event.
    inside = 2 * stats.norm.cdf(0.5 / 5.0) - 1
    assert 0.5 * inside < table.loc["retry", "delta_at_20"] < inside
    with pytest.raises(ValueError, match="lam must be below 1"):
        flaws.retry_example(lam=2.0)
