"""Bad input at the doors of chapter 1: refused by name, before any noise, or handled.

One test a kind of input over all public mechanisms; each checks that the generator has not moved.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse

from adaptive_dp.accuracy_first import (
    GeometricLevels,
    brownian_nr,
    cov_nr,
    covariance_perturbation,
    doubling,
    output_nr,
    output_perturbation,
    theory_inversion,
)
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.privacy import Domain

Array = NDArray[np.float64]
Mechanism = Callable[..., Any]

ONE_SHOT: dict[str, tuple[str, Mechanism]] = {
    "covariance_perturbation": ("real", functools.partial(covariance_perturbation, epsilon=1.0)),
    "output_perturbation_ridge": ("real", functools.partial(output_perturbation, epsilon=1.0)),
    "output_perturbation_logistic": ("sign", functools.partial(output_perturbation, epsilon=1.0)),
}
GOALS: dict[str, Any] = {"alpha": 0.5, "failure": 0.1}
SEARCHES: dict[str, tuple[str, Mechanism]] = {
    "cov_nr": ("real", functools.partial(cov_nr, **GOALS)),
    "output_nr_ridge": ("real", functools.partial(output_nr, **GOALS)),
    "output_nr_logistic": ("sign", functools.partial(output_nr, **GOALS)),
    "doubling_covariance": ("real", functools.partial(doubling, mechanism="covariance", **GOALS)),
    "doubling_output": ("sign", functools.partial(doubling, mechanism="output", **GOALS)),
}
BROWNIAN: dict[str, tuple[str, Mechanism]] = {
    "brownian_covariance": (
        "real",
        functools.partial(brownian_nr, mechanism="covariance", delta=1e-3, count=5, **GOALS),
    ),
    "brownian_output": (
        "sign",
        functools.partial(brownian_nr, mechanism="output", delta=1e-3, count=5, **GOALS),
    ),
}
INVERSION: dict[str, tuple[str, Mechanism]] = {
    "theory_inversion": ("real", functools.partial(theory_inversion, mechanism="output", alpha=0.5)),
}
ALL = {**ONE_SHOT, **SEARCHES, **BROWNIAN, **INVERSION}
WITH_ALPHA = {**SEARCHES, **BROWNIAN, **INVERSION}
WITH_FAILURE = {**SEARCHES, **BROWNIAN}


def data(labels: str) -> Dataset:
    X = np.array([[0.5, 0.5], [1.0, 0.0], [-0.2, 0.3]])
    return Dataset(X, np.array([1.0, -1.0, 1.0]), Domain("l1", 1.0, labels))


def refused(
    call: Callable[[np.random.Generator], object],
    error: type[Exception] | tuple[type[Exception], ...],
    words: str,
) -> None:
    """``call`` raises ``error`` with ``words`` in its message and draws nothing."""
    rng = np.random.default_rng(1)
    before = rng.bit_generator.state
    with pytest.raises(error, match=words):
        call(rng)
    assert rng.bit_generator.state == before


def names(table: dict[str, tuple[str, Mechanism]]) -> Any:
    return pytest.mark.parametrize("name", list(table))


@names(ALL)
def test_a_refusal_is_no_accident_of_the_good_arguments(name: str) -> None:
    """Every mechanism runs on the good input of this file and draws noise."""
    labels, run = ALL[name]
    rng = np.random.default_rng(1)
    before = rng.bit_generator.state
    assert run(data(labels), lam=0.1, rng=rng).guarantee.epsilon > 0
    assert rng.bit_generator.state != before


@names(ALL)
@pytest.mark.parametrize("lam", [0.0, -0.1, math.nan, math.inf])
def test_ridge_parameter_that_is_not_positive(name: str, lam: float) -> None:
    """lam must be positive and finite."""
    labels, run = ALL[name]
    refused(lambda rng: run(data(labels), lam=lam, rng=rng), ValueError, rf"lam .*{lam!r}")


@names(ALL)
@pytest.mark.parametrize("lam", [None, "0.1", True, [0.1], 1j])
def test_ridge_parameter_that_is_no_number(name: str, lam: Any) -> None:
    """lam must be a real number; leaving it out for raw data is named too."""
    labels, run = ALL[name]
    refused(lambda rng: run(data(labels), lam=lam, rng=rng), TypeError, "lam")


@names(WITH_ALPHA)
@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf, "0.1", None, False])
def test_target_that_is_not_positive(name: str, alpha: Any) -> None:
    """alpha must be positive."""
    labels, run = WITH_ALPHA[name]
    refused(lambda rng: run(data(labels), lam=0.1, alpha=alpha, rng=rng), (ValueError, TypeError), "alpha")


@names(WITH_FAILURE)
@pytest.mark.parametrize("failure", [0.0, 1.0, -0.1, 1.5, math.nan, "0.1", None])
def test_failure_probability_outside_the_open_interval(name: str, failure: Any) -> None:
    """gamma lies strictly between 0 and 1."""
    labels, run = WITH_FAILURE[name]
    refused(
        lambda rng: run(data(labels), lam=0.1, failure=failure, rng=rng), (ValueError, TypeError), "failure"
    )


@names(ONE_SHOT)
@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, "1", None, True])
def test_privacy_level_that_is_not_positive(name: str, epsilon: Any) -> None:
    """epsilon is positive and finite: infinity would mean no noise."""
    labels, run = ONE_SHOT[name]
    refused(
        lambda rng: run(data(labels), lam=0.1, epsilon=epsilon, rng=rng), (ValueError, TypeError), "epsilon"
    )


@names(SEARCHES)
@pytest.mark.parametrize(
    "epsilons",
    [
        [0.1, 0.1],
        [0.2, 0.1],
        [0.1],
        [],
        [0.0, 1.0],
        [-1.0, 1.0],
        [0.1, math.nan],
        [0.1, math.inf],
        [[0.1, 0.2]],
        0.5,
        ["a", "b"],
        [0.1, None],
    ],
    ids=str,
)
def test_privacy_levels_that_do_not_increase(name: str, epsilons: Any) -> None:
    """At least two positive levels, strictly increasing (erratum AF-2): the printed order is refused by name."""
    labels, run = SEARCHES[name]
    refused(
        lambda rng: run(data(labels), lam=0.1, epsilons=epsilons, rng=rng),
        (ValueError, TypeError),
        "epsilons",
    )


@names(SEARCHES)
def test_integer_privacy_levels_count_like_floats(name: str) -> None:
    """Field report 17: [1, 2, 4] is [1.0, 2.0, 4.0]; so are a tuple, an array and a geometric list."""
    labels, run = SEARCHES[name]
    versions: list[Any] = [
        [1.0, 2.0, 4.0],
        [1, 2, 4],
        (1, 2, 4),
        np.array([1, 2, 4], dtype=np.int8),
        pd.Series([1, 2, 4]),
    ]
    first, *others = (
        run(data(labels), lam=1, epsilons=levels, rng=np.random.default_rng(2)) for levels in versions
    )
    for other in others:
        assert other.guarantee == first.guarantee
        assert other.index == first.index
    geometric = run(data(labels), lam=1, epsilons=GeometricLevels(1.0, 4.0, 3), rng=np.random.default_rng(2))
    assert geometric.guarantee.epsilon == pytest.approx(first.guarantee.epsilon, rel=1e-12)


@names(ALL)
@pytest.mark.parametrize(
    "rng",
    [None, 0, 20261, np.random.RandomState(1), np.random.PCG64(1), np.random.default_rng],
    ids=lambda value: type(value).__name__,
)
def test_a_generator_that_is_none(name: str, rng: Any) -> None:
    """Field report 7: integers and the legacy generator are refused by name."""
    labels, run = ALL[name]
    with pytest.raises(TypeError, match="rng"):
        run(data(labels), lam=0.1, rng=rng)


@names(ALL)
@pytest.mark.parametrize("calibration", ["tight", "", "Sharp", None, 1])
def test_unknown_calibration(name: str, calibration: Any) -> None:
    """A misspelt calibration does not fall back to another."""
    labels, run = ALL[name]
    refused(
        lambda rng: run(data(labels), lam=0.1, calibration=calibration, rng=rng), ValueError, "calibration"
    )


@names({**BROWNIAN, **INVERSION, "doubling_covariance": SEARCHES["doubling_covariance"]})
@pytest.mark.parametrize("mechanism", ["objective", "Output", "", None])
def test_unknown_mechanism(name: str, mechanism: Any) -> None:
    """A misspelt mechanism is named."""
    labels, run = ALL[name]
    refused(lambda rng: run(data(labels), lam=0.1, mechanism=mechanism, rng=rng), ValueError, "mechanism")


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(ONE_SHOT["covariance_perturbation"][1], id="covariance_perturbation"),
        pytest.param(SEARCHES["cov_nr"][1], id="cov_nr"),
        pytest.param(SEARCHES["doubling_covariance"][1], id="doubling_covariance"),
        pytest.param(BROWNIAN["brownian_covariance"][1], id="brownian_covariance"),
        pytest.param(functools.partial(theory_inversion, mechanism="covariance", alpha=1.0), id="inversion"),
    ],
)
def test_covariance_mechanisms_refuse_classification_data(run: Mechanism) -> None:
    """A logistic optimum is no function of X'X and X'y."""
    refused(lambda rng: run(data("sign"), lam=0.1, rng=rng), ValueError, "logistic|ridge")


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(ONE_SHOT["covariance_perturbation"][1], id="covariance_perturbation"),
        pytest.param(SEARCHES["cov_nr"][1], id="cov_nr"),
        pytest.param(SEARCHES["doubling_covariance"][1], id="doubling_covariance"),
    ],
)
def test_laplace_covariance_mechanisms_refuse_l2_rows(run: Mechanism) -> None:
    """Erratum AF-5a, field report 4: the l1 sensitivity 4 needs rows bounded in l1."""
    rows = Dataset(np.array([[0.6, 0.6], [0.1, 0.2]]), np.array([1.0, 0.5]), Domain("l2", 1.0, "real"))
    refused(lambda rng: run(rows, lam=0.1, rng=rng), ValueError, "l1")


@names(ALL)
@pytest.mark.parametrize(
    "domain", [("linf", 1.0, 1.0), ("l1", 2.0, 1.0), ("l2", 1.01, 1.0), ("l1", 1.0, 2.0)], ids=str
)
def test_domains_without_a_proof(name: str, domain: tuple[str, float, float]) -> None:
    """Field reports 1, 3 and 4: bounds other than those of the proofs are refused, never used silently."""
    norm, bound, label_bound = domain
    labels, run = ALL[name]
    if labels == "sign" and label_bound != 1:
        with pytest.raises(ValueError, match="label_bound"):
            Domain(norm, bound, labels, label_bound)
        return
    table = Dataset(np.array([[0.5], [0.1]]), np.array([1.0, -1.0]), Domain(norm, bound, labels, label_bound))
    refused(lambda rng: run(table, lam=0.1, rng=rng), ValueError, "domain")


@names(ALL)
@pytest.mark.parametrize(
    "table", [None, 3, "census", np.eye(3), (np.eye(3), np.ones(3)), pd.DataFrame([[1]])]
)
def test_data_without_declared_bounds(name: str, table: Any) -> None:
    """Arrays and frames carry no bounds: a Dataset declares them."""
    _, run = ALL[name]
    refused(lambda rng: run(table, lam=0.1, rng=rng), TypeError, "data")


# -------------------------------------------------------------------------- the door of a Dataset


@pytest.mark.parametrize(
    ("features", "labels", "words"),
    [
        pytest.param([[1.0, 0.5], [0, 0]], [1, 1], r"features.*row 0.*1\.5", id="row outside the l1 ball"),
        pytest.param([[0.5, 0.5], [9.0, 0]], [1, 1], r"features.*row 1.*9", id="second row outside"),
        pytest.param([[0.5], [0.5]], [1, 0], r"labels.*0", id="label 0"),
        pytest.param([[0.5], [0.5]], [1, 2], r"labels.*2", id="label 2"),
        pytest.param([[0.5], [math.nan]], [1, 1], r"features.*nan", id="nan feature"),
        pytest.param([[0.5], [math.inf]], [1, 1], r"features.*inf", id="infinite feature"),
        pytest.param([[0.5], [0.5]], [1, math.nan], r"labels.*nan", id="nan label"),
        pytest.param([[0.5], [0.5]], [1, -math.inf], r"labels.*inf", id="infinite label"),
        pytest.param(np.empty((0, 2)), [], r"features.*\(0, 2\)", id="no rows"),
        pytest.param(np.empty((2, 0)), [1, 1], r"features.*\(2, 0\)", id="no columns"),
        pytest.param([[0.5], [0.5]], [1], r"labels.*1.*2", id="too few labels"),
        pytest.param([0.5, 0.5], [1, 1], r"features.*\(2,\)", id="one-dimensional features"),
        pytest.param([[0.5], [0.5]], [[1], [1]], r"labels.*\(2, 1\)", id="two-dimensional labels"),
        pytest.param(0.5, 1.0, r"features", id="scalars"),
    ],
)
def test_impossible_values_are_refused_at_the_door(features: Any, labels: Any, words: str) -> None:
    """Rows, labels, shapes: the error names the argument and shows the value (field report 21)."""
    with pytest.raises(ValueError, match=words):
        Dataset(features, labels, Domain("l1", 1.0, "sign"))


@pytest.mark.parametrize(
    ("features", "labels", "words"),
    [
        pytest.param([["a"], ["b"]], [1, 1], "features", id="text"),
        pytest.param([[None], [0.5]], [1, 1], "features", id="None"),
        pytest.param([[1j], [0.5]], [1, 1], "features", id="complex"),
        pytest.param(pd.DataFrame({"a": [0.5, 0.5], "b": ["x", "y"]}), [1, 1], "features", id="mixed frame"),
        pytest.param([[0.5], [0.5]], ["-1", "1"], "labels", id="text labels"),
        pytest.param([[0.5], [0.5]], pd.Categorical(["a", "b"]), "labels", id="categories"),
        pytest.param(sparse.csr_matrix(np.eye(2)), [1, 1], "features.*dense", id="sparse matrix"),
        pytest.param(sparse.coo_array(np.eye(2)), [1, 1], "features.*dense", id="sparse array"),
        pytest.param(np.ma.masked_invalid([[0.5], [math.nan]]), [1, 1], "features.*masked", id="masked"),
        pytest.param([[0.5], [0.5]], np.ma.array([1, 1], mask=[0, 1]), "labels.*masked", id="masked labels"),
        pytest.param(np.array([["2020-01-01"]], dtype="M8[D]"), [1], "features", id="dates"),
    ],
)
def test_impossible_types_are_refused_at_the_door(features: Any, labels: Any, words: str) -> None:
    """Text, objects, complex numbers, masked and sparse input are not turned into numbers silently."""
    with pytest.raises(TypeError, match=words):
        Dataset(features, labels, Domain("l1", 1.0, "sign"))


@pytest.mark.parametrize("label", [1.0001, -1.5])
def test_real_labels_outside_their_bound(label: float) -> None:
    """|y| <= 1 as declared, on both sides (field report 3)."""
    with pytest.raises(ValueError, match="labels"):
        Dataset([[0.5]], [label], Domain("l1", 1.0, "real"))


@pytest.mark.parametrize("domain", [None, "l1", {"norm": "l1"}])
def test_a_domain_that_is_none(domain: Any) -> None:
    """Bounds are declared through a Domain."""
    with pytest.raises(TypeError, match="domain"):
        Dataset([[0.5]], [1.0], domain)


# ---------------------------------------------------------- parameters of the Brownian search alone


@names(BROWNIAN)
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("delta", 0.0),
        ("delta", 1.0),
        ("delta", math.nan),
        ("largest", 0.0),
        ("largest", -1.0),
        ("largest", math.inf),
        ("count", 1),
        ("count", 2.5),
        ("tuned_epsilon", 0.0),
        ("tuned_epsilon", "1"),
    ],
)
def test_brownian_parameters_out_of_range(name: str, argument: str, value: Any) -> None:
    """delta in (0, 1); largest, tuned_epsilon positive; at least two variances."""
    labels, run = BROWNIAN[name]
    refused(
        lambda rng: run(data(labels), lam=0.1, rng=rng, **{argument: value}),
        (ValueError, TypeError),
        argument,
    )


# ------------------------------------------------------------------------- unusual but good input


@names(ALL)
def test_a_single_record_and_a_single_feature(name: str) -> None:
    """n = p = 1 is data."""
    labels, run = ALL[name]
    table = Dataset([[1.0]], [1.0], Domain("l1", 1.0, labels))
    assert run(table, lam=0.5, rng=np.random.default_rng(3)).guarantee.epsilon > 0


@names(ALL)
@pytest.mark.parametrize("kind", ["zero rows", "duplicates", "constant column", "p > n", "one class"])
def test_degenerate_data_are_handled(name: str, kind: str) -> None:
    """No warning, no special value: theta is finite."""
    labels, run = ALL[name]
    rng = np.random.default_rng(4)
    X = {
        "zero rows": np.zeros((5, 2)),
        "duplicates": np.tile([[0.25, -0.25]], (6, 1)),
        "constant column": np.column_stack([np.full(6, 0.5), rng.uniform(-0.5, 0.5, 6)]),
        "p > n": rng.dirichlet(np.ones(7), 2),
        "one class": rng.dirichlet(np.ones(2), 8),
    }[kind]
    y = np.ones(len(X)) if kind == "one class" else rng.choice([-1.0, 1.0], len(X))
    release = run(Dataset(X, y, Domain("l1", 1.0, labels)), lam=0.2, rng=rng)
    assert math.isfinite(release.guarantee.epsilon)
    assert release.refused or np.isfinite(release.value).all()


@names(ALL)
@pytest.mark.parametrize("lam", [1e-9, 1e-4, 100.0, 1e6])
def test_extreme_ridge_parameters_are_handled(name: str, lam: float) -> None:
    """lam over fifteen orders of magnitude: a finite price or a refusal, never a warning."""
    labels, run = ALL[name]
    release = run(data(labels), lam=lam, rng=np.random.default_rng(5))
    assert 0 < release.guarantee.epsilon < math.inf


@names(WITH_ALPHA)
@pytest.mark.parametrize("alpha", [1e-8, 1e6])
def test_extreme_targets_are_handled(name: str, alpha: float) -> None:
    """A target far below or above any risk has a price, or is refused at a price."""
    labels, run = WITH_ALPHA[name]
    release = run(data(labels), lam=0.1, alpha=alpha, rng=np.random.default_rng(6))
    assert 0 < release.guarantee.epsilon < math.inf


@names(WITH_FAILURE)
@pytest.mark.parametrize("failure", [1e-12, 1 - 1e-12])
def test_extreme_failure_probabilities_are_handled(name: str, failure: float) -> None:
    """gamma near 0 and near 1 keeps every budget positive."""
    labels, run = WITH_FAILURE[name]
    release = run(data(labels), lam=0.1, failure=failure, rng=np.random.default_rng(7))
    assert release.guarantee.parts["test"] > 0


@names(ONE_SHOT)
@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 1e9])
def test_extreme_privacy_levels_are_handled(name: str, epsilon: float) -> None:
    """Noise far above and far below the data: theta is finite and never exact at small epsilon."""
    labels, run = ONE_SHOT[name]
    release = run(data(labels), lam=0.1, epsilon=epsilon, rng=np.random.default_rng(8))
    assert np.isfinite(release.value).all()
    assert np.isfinite(release.trace["excess_risk"])


@names(ALL)
def test_parameters_are_keyword_only(name: str) -> None:
    """Field report 12: no number can land on the wrong parameter by its place."""
    labels, run = ALL[name]
    with pytest.raises(TypeError, match="positional"):
        run(data(labels), 0.1, rng=np.random.default_rng(9))


@pytest.mark.parametrize("alpha", [1e-200, 1e200])
def test_alpha_beyond_any_use_is_named(alpha: float) -> None:
    """Squares of it would overflow; the message names it before noise is drawn."""
    rng = np.random.default_rng(1)
    before = rng.bit_generator.state
    data = Dataset(np.eye(2), [0.5, -0.5], Domain())
    for call in (cov_nr, output_nr):
        with pytest.raises(ValueError, match="alpha must lie between"):
            call(data, lam=0.1, alpha=alpha, failure=0.1, rng=rng)
    assert rng.bit_generator.state == before


def test_labels_of_another_problem_are_named() -> None:
    """Covariance perturbation of classification labels names the data, not a parameter that was never given."""
    data = Dataset(np.eye(2), [1.0, -1.0], Domain("l1", 1.0, "sign", 1.0))
    with pytest.raises(ValueError, match="data must pose a ridge problem"):
        cov_nr(data, lam=0.1, alpha=0.1, failure=0.1, rng=np.random.default_rng(1))
    with pytest.raises(ValueError, match="largest must exceed"):
        brownian_nr(
            data,
            mechanism="output",
            lam=0.1,
            alpha=0.1,
            failure=0.1,
            delta=1e-6,
            largest=1e-6,
            rng=np.random.default_rng(1),
        )
