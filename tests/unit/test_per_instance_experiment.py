"""The chapter's experiments on small data: numbers against direct computation, seeds, workers and refusals."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from adaptive_dp import goe
from adaptive_dp.accounting import gaussian_delta, gaussian_epsilon
from adaptive_dp.datasets import Dataset, simulate_margin, simulate_unit_rows
from adaptive_dp.experiments import load_results
from adaptive_dp.losses import LogisticLoss, SquaredLoss
from adaptive_dp.per_instance import LinearPerturbationCurve, Objective, kifer_calibration, perturb_objective
from adaptive_dp.per_instance import experiment as ex
from adaptive_dp.per_instance import experiment_repeats as repeats
from adaptive_dp.per_instance import experiment_sizes as sizes
from adaptive_dp.per_instance.pipeline import PipelineCurve
from adaptive_dp.privacy import PrivacyCurve
from tools import paper_per_instance

DELTA = RHO = 1e-6
FREE = ex.Budget(1.0)
PAID = ex.Budget(0.2, 0.7, 0.1)


@pytest.fixture(scope="module")
def people() -> Dataset:
    return simulate_unit_rows(150, 6, np.random.default_rng(1))


def compare(people: Dataset, seed: int = 2, **options) -> pd.DataFrame:
    settings = {"budget_independent": FREE, "budget_dependent": PAID, "delta": DELTA, "rho": RHO} | options
    loss = settings.pop("loss", LogisticLoss())
    return ex.compare_reports(people, loss, rng=np.random.default_rng(seed), **settings)


@pytest.fixture(scope="module")
def frame(people: Dataset) -> pd.DataFrame:
    return compare(people)


# ---------------------------------------------------------------- budgets and settings


def test_budgets_add_up_and_half_a_report_is_refused():
    """All four allocations spend 1; a gradient without a Hessian is no report of Algorithm 2."""
    assert [budget.total for budget in ex.allocations()] == pytest.approx([1.0] * 4)
    assert ex.Budget(1).gradient == 0.0
    for bad in [(1.0, 0.5, 0.0), (1.0, 0.0, 0.5), (1.0, -1.0, 1.0), (0.0, 1.0, 1.0), (math.nan, 1.0, 1.0)]:
        with pytest.raises(ValueError, match=r"training|gradient"):
            ex.Budget(*bad)


@pytest.mark.parametrize("profile", ["quick", "book", "paper"])
def test_settings_of_every_profile_fit_the_sweeps(profile):
    """Positive sizes, axes in increasing order; the paper's axes are those of Figures A.1 and A.2."""
    settings = ex.chapter_settings(profile)
    for axis in ("rows", "columns", "epsilons", "inflations"):
        assert settings[axis] == sorted(settings[axis])
        assert settings[axis][0] > 0
    if profile == "paper":
        assert (settings["rows"][0], settings["rows"][-1]) == (100, 10_000)
        assert (settings["columns"][0], settings["columns"][-1]) == (1, 60)


# ---------------------------------------------------------------- rotation


def test_unrotated_losses_are_the_two_local_terms_and_rotation_costs_more():
    """At the exact minimiser the gradient of J vanishes: no inner product; turned round, everybody is misfit."""
    people = simulate_margin(60, 0.4, np.random.default_rng(0))
    table = ex.rotated_losses(people, [0.0, math.pi], sigma=2.0)
    assert len(table) == 120
    still, turned = table[table["angle"] == 0.0], table[table["angle"] > 0.0]
    np.testing.assert_allclose(still["inner"], 0.0, atol=1e-9)
    np.testing.assert_allclose(still["loss"], still["determinant"] + still["gradient"], rtol=1e-6)
    assert turned["loss"].min() > still["loss"].max()
    # The logistic curvature is even in x'theta: half a turn keeps every Hessian.
    np.testing.assert_allclose(turned["determinant"], still["determinant"], rtol=1e-9)
    np.testing.assert_array_equal(still[["x1", "x2"]].to_numpy(), people.features)


def test_quarter_turn_is_counter_clockwise():
    """The gradient term at a quarter turn is that of the vector (-theta_2, theta_1)."""
    people = simulate_margin(40, 0.4, np.random.default_rng(3))
    theta = Objective(people, LogisticLoss(), 1.0).minimise().theta
    margins = people.labels * (people.features @ np.array([-theta[1], theta[0]]))
    slopes = 1 / (1 + np.exp(margins))
    expected = 0.5 * (slopes * np.linalg.norm(people.features, axis=1)) ** 2
    found = ex.rotated_losses(people, [math.pi / 2], sigma=1.0)["gradient"]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_rotation_needs_two_features(people):
    with pytest.raises(ValueError, match="people must have two features"):
        ex.rotated_losses(people, [0.0], sigma=1.0)


# ---------------------------------------------------------------- the curve of a whole pipeline


@pytest.mark.parametrize(("mu", "kappa", "report"), [(0.09, 0.5, 0.24), (1.0, 0.02, 0.3), (0.3, 0.2, 2.0)])
def test_pipeline_delta_is_the_expectation_over_both_noises(mu, kappa, report):
    """Against a plain double sum over both normals, without the Gaussian profile."""
    curve = PipelineCurve(mu, kappa, report)
    n = np.linspace(-9, 9, 3_001)
    weight = stats.norm.pdf(n) * (n[1] - n[0])
    second = report**2 / 2 + report * n
    for epsilon in (0.1, 0.5, 1.5):
        deltas = []
        for first in (
            mu**2 / 2 + mu * np.abs(n),
            math.log1p(kappa) + mu**2 / 2 + mu * np.maximum(n, 0),
        ):
            total = first[:, np.newaxis] + second
            deltas.append(float(weight @ np.maximum(-np.expm1(epsilon - total), 0) @ weight))
        assert curve.delta(epsilon) == pytest.approx(max(deltas), rel=1e-4, abs=1e-12)


def test_pipeline_with_a_silent_report_is_the_training_alone():
    """mu_report near 0: both directions of the training's curve come back."""
    for mu, kappa in [(0.5, 1e-6), (0.1, 0.5)]:
        training = LinearPerturbationCurve(mu, kappa)
        epsilon = training.epsilon(1e-5)
        assert PipelineCurve(mu, kappa, 1e-6).delta(epsilon) == pytest.approx(
            training.delta(epsilon), rel=1e-3
        )


def test_pipeline_epsilon_is_on_the_safe_side_and_below_the_sum():
    curve = PipelineCurve(0.1, 0.1, 0.3)
    epsilon = curve.epsilon(DELTA)
    assert curve.delta(epsilon) <= DELTA < curve.delta(epsilon * (1 - 1e-9))
    parts = LinearPerturbationCurve(0.1, 0.1).epsilon(DELTA / 2) + gaussian_epsilon(DELTA / 2, 0.3)
    assert gaussian_epsilon(DELTA, 0.3) < epsilon < parts
    assert PipelineCurve(0.1, 0.1, 0.3).epsilon(0.9) == 0.0


def test_pipeline_refuses_what_is_no_curve():
    assert isinstance(PipelineCurve(0.1, 0.1, 0.1), PrivacyCurve)
    with pytest.raises(ValueError, match="mu_report"):
        PipelineCurve(0.1, 0.1, 0.0)
    with pytest.raises(ValueError, match="epsilon must be nonnegative"):
        PipelineCurve(0.1, 0.1, 0.1).delta(-0.1)


# ---------------------------------------------------------------- the comparison


def test_noise_and_ridge_are_what_the_budget_says(people, frame):
    """Kifer's corrected scale, the exact Gaussian scales, and Algorithm 2's ridge."""
    attrs = frame.attrs
    assert attrs["sigma_independent"] == pytest.approx(math.sqrt(8 * math.log(2e6) + 4), rel=1e-12)
    assert attrs["lam_independent"] == pytest.approx(0.5)
    assert attrs["lam_dependent"] == pytest.approx(
        2 * attrs["sigma_hessian"] * goe.operator_norm_bound(RHO, 6), rel=1e-12
    )
    mu = 0.25 / math.sqrt(2) / attrs["sigma_hessian"]
    assert gaussian_epsilon(DELTA, mu) == pytest.approx(0.1, rel=1e-6)
    # The largest slope on |x'theta| <= ||theta|| is below 1, so less noise is enough.
    slope = 1 / (1 + math.exp(-attrs["norm_dependent"]))
    assert gaussian_epsilon(DELTA, slope / attrs["sigma_gradient"]) == pytest.approx(0.7, rel=1e-6)
    assert compare(people, lam_rule="same").attrs["lam_dependent"] == pytest.approx(2.5)


def test_guarantees_of_whole_pipelines_are_below_the_nominal_budget(frame):
    """Kifer's calibration and the plain sum of epsilons both leave slack, which the sharp curves find."""
    attrs = frame.attrs
    assert 0 < attrs["epsilon_independent"] < attrs["nominal_independent"] == 1.0
    largest = max(attrs["epsilon_training_dependent"], attrs["epsilon_report"])
    assert largest < attrs["epsilon_dependent"] < attrs["nominal_dependent"]


def test_bounds_hold_and_overheads_never_exceed_the_report(frame):
    """At rho = 1e-6 a failure would be a bug; nobody's overhead exceeds the worst case of the report."""
    assert len(frame) == 150
    for kind, truth in (("independent", "independent"), ("dependent", "dependent"), ("free", "dependent")):
        assert (frame[f"bound_{kind}"] >= frame[f"exact_{truth}"]).all()
        expected = frame[f"bound_{kind}"] / frame[f"exact_{truth}"]
        np.testing.assert_allclose(frame[f"ratio_{kind}"], expected, rtol=1e-12)
    assert (frame["bound_dependent"] <= frame["bound_free"] * (1 + 1e-12)).all()
    assert frame["overhead"].max() <= frame.attrs["epsilon_report"]
    np.testing.assert_allclose(frame["total"], frame["bound_dependent"] + frame["overhead"])


def test_interval_combination_and_membership_sharpen_the_bounds(people, frame):
    """Same noise, so the same exact losses; keeping signs never makes a bound larger."""
    sharp = compare(people, combine="interval", member=True)
    np.testing.assert_array_equal(sharp["exact_dependent"], frame["exact_dependent"])
    for name in ("bound_independent", "bound_dependent", "bound_free"):
        assert (sharp[name] <= frame[name] * (1 + 1e-12)).all()
    assert sharp["bound_dependent"].mean() < frame["bound_dependent"].mean()


def test_comparison_repeats_from_its_generator(people, frame):
    pd.testing.assert_frame_equal(compare(people), frame)
    assert not compare(people, seed=3)["exact_independent"].equals(frame["exact_independent"])


def test_squared_loss_has_losses_but_no_worst_case():
    """Gradients are unbounded: calibrated as if they were not, and infinity is said, not the nominal epsilon."""
    rows = simulate_unit_rows(80, 4, np.random.default_rng(5), labels="real")
    table = compare(rows, loss=SquaredLoss(), budget_dependent=ex.Budget(1, 1, 1))
    assert math.isinf(table.attrs["epsilon_independent"])
    assert math.isinf(table.attrs["epsilon_dependent"])
    assert table.attrs["slope"] == 1.0
    assert not table.attrs["slope_proved"]
    assert np.isfinite(table["bound_dependent"]).all()
    assert (table["bound_dependent"] >= table["exact_dependent"]).all()
    steeper = compare(rows, loss=SquaredLoss(), budget_dependent=ex.Budget(1, 1, 1), slope=2.0).attrs
    assert steeper["sigma_independent"] == pytest.approx(2 * table.attrs["sigma_independent"])


def test_budgets_of_the_wrong_kind_are_refused_before_any_noise(people):
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    for free, paid, name in [(PAID, PAID, "budget_independent"), (FREE, FREE, "budget_dependent")]:
        with pytest.raises(ValueError, match=name):
            ex.compare_reports(
                people,
                LogisticLoss(),
                budget_independent=free,
                budget_dependent=paid,
                delta=DELTA,
                rho=RHO,
                rng=rng,
            )
    assert rng.bit_generator.state == state
    with pytest.raises(ValueError, match="lam_rule"):
        compare(people, lam_rule="other")
    with pytest.raises(ValueError, match="lam must be at least"):
        compare(people, lam_rule="same", rule="three-halves")


# ---------------------------------------------------------------- summaries


def test_summary_counts_a_planted_failure_and_finds_the_quantiles(frame):
    """Two of 150 bounds pushed below the truth; medians are entries of the column."""
    planted = frame.copy()
    planted.loc[[4, 7], "bound_dependent"] = 0.5 * planted.loc[[4, 7], "exact_dependent"]
    summary = ex.summarise_comparison(planted).set_index("quantity")
    assert summary.loc["bound_dependent", "coverage"] == pytest.approx(148 / 150)
    assert summary.loc["bound_independent", "coverage"] == 1.0
    assert math.isnan(summary.loc["overhead", "coverage"])
    ordered = np.sort(frame["overhead"])
    assert summary.loc["overhead", "median"] == ordered[74]
    assert summary.loc["overhead", "max"] == ordered[-1]
    assert summary.loc["overhead", "q01"] == ordered[1]


def test_quantile_table_reads_infinite_ratios_and_refuses_other_levels(frame):
    planted = frame.copy()
    planted.loc[3, "ratio_free"] = math.inf
    table = ex.quantile_table(planted, ["ratio_free"], [0.0, 0.5, 1.0])
    assert list(table.columns) == ["level", "ratio_free"]
    assert table["ratio_free"].tolist()[-1] == math.inf
    assert table["ratio_free"].iloc[0] == frame["ratio_free"].min()
    with pytest.raises(ValueError, match="levels"):
        ex.quantile_table(frame, ["overhead"], [1.5])
    with pytest.raises(ValueError, match="no column"):
        ex.quantile_table(frame, ["nothing"], [0.5])


def test_repetitions_pair_the_rules_and_average_their_summaries(people):
    """The free pipeline is the same under both rules (same noise), and a mean is the mean of single runs."""
    options = {
        "independent": [1.0],
        "dependent": [PAID],
        "delta": DELTA,
        "rho": RHO,
        "repetitions": 2,
        "seed": 4,
    }
    table = repeats.repeat_comparison(people, LogisticLoss(), **options)
    free = table[table["quantity"] == "bound_independent"]
    assert free["lam_rule"].tolist() == ["printed", "same"]
    assert free["median"].iloc[0] == free["median"].iloc[1]
    again = repeats.repeat_comparison(people, LogisticLoss(), **options)
    pd.testing.assert_frame_equal(again, table)
    row = table[(table["quantity"] == "lam_dependent") & (table["lam_rule"] == "same")].iloc[0]
    assert row["median"] == pytest.approx(2.5)
    with pytest.raises(ValueError, match="independent must have one entry"):
        repeats.repeat_comparison(people, LogisticLoss(), **(options | {"independent": [1.0, 2.0]}))


# ---------------------------------------------------------------- sweeps


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_required_inflation_is_the_ridge_of_a_comparison(people, epsilon):
    """lam of Algorithm 2 over Kifer's lam, whatever slope and curvature are; the thesis's 12 is too small by sqrt 2."""
    common = {"epsilon": epsilon, "delta": DELTA, "rho": RHO, "dimension": 6}
    star = sizes.required_inflation(**common, slope=1.0, curvature=0.25)
    assert star == pytest.approx(sizes.required_inflation(**common, slope=3.0, curvature=7.0), rel=1e-9)
    paid = ex.Budget(epsilon, epsilon, epsilon)
    attrs = compare(people, budget_independent=ex.Budget(epsilon), budget_dependent=paid).attrs
    assert attrs["lam_dependent"] / attrs["lam_independent"] == pytest.approx(max(1.0, star), rel=1e-9)
    common["dimension"] = 50
    exact = sizes.required_inflation(**common, slope=1.0, curvature=0.25)
    printed = sizes.required_inflation(**common, slope=1.0, curvature=0.25, tau=12.0)
    assert exact / printed == pytest.approx(goe.operator_norm_bound(RHO, 50) / 12, rel=1e-9)


def test_inflated_ridges_meet_the_same_noise(people):
    """A huge ridge only shortens theta: the error is that of the direction, and the same at both huge inflations."""
    options = {"epsilons": [0.5, 2.0], "delta": DELTA, "trials": 3, "seed": 6}
    table = sizes.utility_by_inflation(people, inflations=[1.0, 1e5, 1e6], **options)
    assert table[["epsilon", "inflation"]].to_numpy().tolist() == [
        [epsilon, scale] for epsilon in (0.5, 2.0) for scale in (1.0, 1e5, 1e6)
    ]
    for _, part in table.groupby("epsilon"):
        assert part["mean"].iloc[1] == pytest.approx(part["mean"].iloc[2], abs=1e-3)
        assert part["norm"].is_monotonic_decreasing
        assert part["log_loss"].iloc[2] == pytest.approx(math.log(2), abs=1e-3)
    alone = sizes.utility_by_inflation(people, inflations=[1e5], **options)
    np.testing.assert_array_equal(alone["mean"], table.loc[table["inflation"] == 1e5, "mean"])


def test_worst_cases_are_maxima_and_do_not_depend_on_workers():
    """Bounds are above what they bound, scopes in order; the same with two workers and with one point alone."""
    table = sizes.worst_case_by_rows([30, 60], columns=4, trials=3, seed=7)
    assert table["rows"].tolist() == [30, 60]
    assert (table["columns"] == 4).all()
    assert (table["bound_independent"] >= table["exact_independent"]).all()
    assert (table["bound_dependent"] >= table["exact_dependent"]).all()
    assert (table["bound_free"] >= table["bound_dependent"]).all()
    assert (table["bound_everyone"] > table["bound_independent"]).all()
    for name in sizes.WORST:
        assert (table[f"{name}_low"] <= table[name]).all()
    pd.testing.assert_frame_equal(
        sizes.worst_case_by_rows([30, 60], columns=4, trials=3, seed=7, jobs=2), table
    )
    one = sizes.worst_case_by_columns([4], rows=60, trials=3, seed=7)
    pd.testing.assert_frame_equal(one, table.iloc[[1]].reset_index(drop=True))


def test_worst_free_bound_is_the_formula_at_the_largest_loss():
    """A slope near 1 among 400: the largest bound is 1 / (2 sigma^2) + q / sigma, and at most log(1 + kappa) more."""
    table = sizes.worst_case_by_rows([400], columns=5, trials=2, seed=8)
    sigma, lam = kifer_calibration(epsilon=1.0, delta=DELTA, slope=1.0, curvature=0.25)
    top = 0.5 / sigma**2 + stats.norm.isf(RHO / 2) / sigma
    assert top * 0.9 < table["bound_independent"].iloc[0] < top + math.log1p(0.25 / lam)


# ---------------------------------------------------------------- coverage


def test_reports_cover_those_in_their_scope():
    """No promise is refuted, and a bound for one person read by everybody does fail."""
    table = sizes.coverage(sizes.small_people(41, 4), trials=60, seed=9, rho=0.2, kinds=["independent"])
    assert table["readers"].tolist() == [readers for _, readers in sizes.READERS]
    promised = table[table["promised"]]
    assert (promised["high"] >= promised["nominal"]).all()
    assert (promised["nominal"] == 0.8).all()
    assert table.loc[~table["promised"], "high"].item() < 0.8


def test_reports_that_are_paid_for_cover_too():
    """Events add up: 3 and 4 of them; everybody's bounds at once hold more often than nominal."""
    table = sizes.coverage(trials=25, seed=10, rho=0.05, kinds=["dependent", "adaptive"])
    nominal = table.groupby("kind")["nominal"].first()
    assert nominal.to_dict() == pytest.approx({"dependent": 0.85, "adaptive": 0.8})
    promised = table[table["promised"]]
    assert (promised["high"] >= promised["nominal"]).all()
    assert (table["covered"] <= table["trials"]).all()


def test_coverage_sees_bounds_that_are_too_small():
    """Planted: exact losses of a release with less noise than the report is told are not covered."""
    rng = np.random.default_rng(11)
    maker = sizes.small_people(11, 3)
    people = maker(rng)
    assert (people.rows, people.columns) == (11, 3)
    report = sizes.data_independent_report(
        np.zeros(3), LogisticLoss(), people.domain, lam=1.0, sigma=1.0, rho=0.1
    )
    exact = report.to_frame(people.features, people.labels, member=True)["bound"].to_numpy()
    assert sizes._holds(report, people, exact, member=True).all()
    assert not sizes._holds(report, people, exact * 1.001, member=True).any()


def test_records_made_afterwards_lie_along_the_noise():
    """They attain the l2 norm and the largest entry of the noise, stay in the domain, and have both labels."""
    outsider = simulate_unit_rows(1, 3, np.random.default_rng(12))
    gradient = np.array([3.0, -4.0, 0.0])
    made = sizes._with_records_made_afterwards(outsider, gradient)
    np.testing.assert_array_equal(made.features[0], outsider.features[0])
    np.testing.assert_allclose(made.features[1:] @ gradient, [5.0, -4.0, 5.0, -4.0])
    assert made.labels[1:].tolist() == [1.0, 1.0, -1.0, -1.0]


def test_perturbed_minimiser_is_what_the_mechanism_publishes(people):
    """Same generator, same theta; only the guarantee is left out."""
    release = perturb_objective(
        people, LogisticLoss(), lam=0.5, sigma=2.0, delta=DELTA, rng=np.random.default_rng(3)
    )
    objective = Objective(people, LogisticLoss(), 0.5)
    theta = sizes.perturbed_minimiser(objective, sigma=2.0, rng=np.random.default_rng(3))
    np.testing.assert_array_equal(theta, release.value)


def test_unknown_kind_of_report_is_refused():
    with pytest.raises(ValueError, match="kinds must be one of"):
        sizes.coverage(trials=1, seed=0, kinds=["other"])


def test_profile_of_the_report_is_monotone():
    """The expectation behind the pipeline rests on it: the Gaussian profile falls with epsilon."""
    values = gaussian_delta(np.linspace(-3, 3, 50), 0.4)
    assert (np.diff(values) < 0).all()


# ---------------------------------------------------------------- the recording tool


def test_tool_records_and_resumes(tmp_path, monkeypatch):
    """Kidney data, two repetitions: tables that load, beside their distributions; a second run adds nothing."""
    monkeypatch.setattr(paper_per_instance, "ROOT", tmp_path)
    monkeypatch.setattr(paper_per_instance, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(paper_per_instance, "LOCAL", tmp_path / "local")
    assert paper_per_instance.main(["--only", "kidney", "--jobs", "1", "--repetitions", "2"]) == 0
    table, metadata = load_results(tmp_path / "results" / "per-instance-kidney.csv")
    assert metadata["parameters"]["columns"] == 24
    assert metadata["parameters"]["trivial_error"] == 150 / 400
    assert (table["repetitions"] == 2).all()
    assert set(table["lam_rule"]) == set(ex.LAM_RULES)
    holds = table[table["quantity"].str.startswith("bound")]
    assert (holds["coverage"] == 1.0).all()
    curves, _ = load_results(tmp_path / "results" / "per-instance-kidney-quantiles.csv")
    for _, part in curves.groupby(["training", "lam_rule"]):
        assert part["level"].tolist() == paper_per_instance.ECDF_LEVELS
        assert part["exact_dependent"].is_monotonic_increasing
    trials = tmp_path / "local" / "per-instance-kidney.jsonl"
    before = trials.read_text(encoding="utf-8")
    assert paper_per_instance.main(["--only", "kidney", "--jobs", "1", "--repetitions", "2"]) == 0
    assert trials.read_text(encoding="utf-8") == before


def test_tool_names_what_it_does_not_know(capsys):
    assert paper_per_instance.main(["--only", "other"]) == 2
    assert "unknown experiment 'other'" in capsys.readouterr().err
