"""Properties of the vocabulary of privacy and of the checks at the door."""

import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from adaptive_dp.privacy import (
    GUARANTEES,
    NORMS,
    Domain,
    Guarantee,
    Neighbours,
    PrivacyCurve,
    Refused,
    Release,
    Trace,
    row_norms,
)
from adaptive_dp.validation import (
    as_finite_array,
    check_choice,
    check_count,
    check_generator,
    check_increasing_epsilons,
    check_positive,
    check_probability,
    check_real,
)

reproducible = settings(deadline=None, max_examples=60, derandomize=True)
finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(1e-300, 1e300)
not_numbers = st.one_of(st.text(), st.booleans(), st.none(), st.lists(finite), st.complex_numbers())
not_finite = st.sampled_from([math.nan, math.inf, -math.inf])


# --- validation -------------------------------------------------------------------------------------


@reproducible
@given(st.one_of(finite, st.integers(-(10**15), 10**15)), st.text(min_size=1))
def test_check_real_returns_the_number(value, name):
    assume(abs(value) < 1e300)
    assert check_real(name, value) == float(value)
    assert type(check_real(name, value)) is float


@reproducible
@given(st.one_of(not_numbers, hnp.arrays(float, (2,))))
def test_check_real_refuses_other_types(value):
    with pytest.raises(TypeError, match="epsilon must be a real number, got"):
        check_real("epsilon", value)


@reproducible
@given(not_finite)
def test_check_real_refuses_what_is_not_finite(value):
    for check in (check_real, check_positive, check_probability):
        with pytest.raises(ValueError, match="epsilon must be finite, got"):
            check("epsilon", value)


@reproducible
@given(finite)
def test_intervals_are_open(value):
    if value > 0:
        assert check_positive("x", value) == value
    else:
        with pytest.raises(ValueError, match="x must be positive, got"):
            check_positive("x", value)
    if 0 < value < 1:
        assert check_probability("x", value) == value
    else:
        with pytest.raises(ValueError, match="x must lie strictly between 0 and 1, got"):
            check_probability("x", value)


@reproducible
@given(st.integers(-5, 10**12), st.integers(-5, 5))
def test_check_count(value, minimum):
    for number in (value, np.int64(value)):
        if value >= minimum:
            assert check_count("rows", number, minimum) == value
            assert type(check_count("rows", number, minimum)) is int
        else:
            with pytest.raises(ValueError, match=f"rows must be at least {minimum}, got {value}"):
                check_count("rows", number, minimum)


@reproducible
@given(st.one_of(finite, st.text(), st.booleans(), st.none()))
def test_check_count_refuses_other_types(value):
    with pytest.raises(TypeError, match="rows must be an integer"):
        check_count("rows", value)


@reproducible
@given(st.text())
def test_check_choice(value):
    if value in NORMS:
        assert check_choice("norm", value, NORMS) == value
    else:
        with pytest.raises(ValueError, match="norm must be one of 'l1', 'l2', 'linf', got"):
            check_choice("norm", value, NORMS)


@reproducible
@given(st.one_of(st.integers(), st.none(), st.text()))
def test_only_generators_are_sources_of_chance(value):
    with pytest.raises(TypeError, match=r"rng must be a numpy\.random\.Generator"):
        check_generator(value)
    rng = np.random.default_rng(0)
    assert check_generator(rng) is rng


@reproducible
@given(
    hnp.arrays(
        st.sampled_from([np.float64, np.float32, np.int32, np.uint8, np.bool_]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
def test_as_finite_array_copies_or_names_the_culprit(array):
    if np.isfinite(array).all():
        result = as_finite_array("x", array, ndim=array.ndim)
        assert result.dtype == np.float64
        assert not np.shares_memory(result, array)
        np.testing.assert_array_equal(result, array)
        with pytest.raises(ValueError, match=f"x must have {array.ndim + 1} dimension"):
            as_finite_array("x", array, ndim=array.ndim + 1)
    else:
        with pytest.raises(ValueError, match=r"x must be finite, got .* at index"):
            as_finite_array("x", array)


@pytest.mark.parametrize("bad", [["a"], [1j], [None], np.ma.masked_array([1.0, 2.0], [0, 1])])
def test_as_finite_array_refuses_other_types(bad):
    with pytest.raises(TypeError, match="x must"):
        as_finite_array("x", bad)


@reproducible
@given(st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=8))
def test_privacy_levels_must_increase_strictly(levels):
    ordered = sorted(set(levels))
    if levels == ordered:
        np.testing.assert_array_equal(check_increasing_epsilons(levels), levels)
    else:
        with pytest.raises(ValueError, match="epsilons must be strictly increasing, got"):
            check_increasing_epsilons(levels)
    with pytest.raises(ValueError, match="epsilons must be positive"):
        check_increasing_epsilons([0.0, *ordered])
    with pytest.raises(ValueError, match="epsilons must hold at least 9 levels"):
        check_increasing_epsilons(levels, minimum=9)


# --- domains ----------------------------------------------------------------------------------------


@reproducible
@given(
    hnp.arrays(float, st.tuples(st.integers(1, 6), st.integers(1, 4)), elements=st.floats(-100, 100)),
    st.sampled_from(NORMS),
    st.floats(1e-3, 1e3),
)
def test_domain_accepts_rows_scaled_to_its_bound_and_refuses_longer_ones(rows, norm, bound):
    domain = Domain(norm=norm, feature_bound=bound)
    norms = row_norms(rows, norm)
    assume((norms > 1e-6).all())
    on_the_edge = rows * (bound / norms)[:, np.newaxis]
    labels = np.zeros(len(rows))
    features, _ = domain.check(on_the_edge, labels)
    np.testing.assert_array_equal(features, on_the_edge)
    on_the_edge[-1] *= 1 + 1e-6
    with pytest.raises(
        ValueError, match=f"features: row {len(rows) - 1} has {norm} norm .* above the declared bound"
    ):
        domain.check(on_the_edge, labels)


@reproducible
@given(hnp.arrays(float, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.floats(-1e6, 1e6)))
def test_norms_are_ordered(rows):
    rows[np.abs(rows) < 1e-100] = 0  # their squares vanish in double precision
    l1, l2, linf = (row_norms(rows, norm) for norm in NORMS)
    slack = 1 + 1e-12
    assert (linf <= l2 * slack).all()
    assert (l2 <= l1 * slack).all()
    assert (l1 <= rows.shape[1] * linf * slack).all()


@reproducible
@given(st.sampled_from(["real", "sign", "class"]), st.floats(-4, 4))
def test_domain_of_labels(kind, label):
    domain = Domain(labels=kind, label_bound={"real": 2.0, "sign": 1.0, "class": 3.0}[kind])
    allowed = {"real": abs(label) <= 2, "sign": abs(label) == 1, "class": label in (0, 1, 2)}[kind]
    for value, accepted in ((label, allowed), (1.0, True), (-5.0, False), (0.5, kind == "real")):
        if accepted:
            assert domain.check([[0.0]], [value])[1][0] == value
        else:
            with pytest.raises(ValueError, match=r"labels: entry 0 is .* outside the declared domain"):
                domain.check([[0.0]], [value])


@reproducible
@given(st.one_of(not_finite, st.floats(-1e3, 0)))
def test_domain_bounds_are_positive(bound):
    for name in ("feature_bound", "label_bound"):
        with pytest.raises(ValueError, match=f"{name} must be"):
            Domain(**{name: bound})


def test_domain_refuses_contradictions():
    with pytest.raises(ValueError, match="label_bound must be 1"):
        Domain(labels="sign", label_bound=2.0)
    with pytest.raises(ValueError, match="norm must be one of"):
        Domain(norm="l3")
    with pytest.raises(ValueError, match="labels must have one entry a row"):
        Domain().check([[0.0], [0.0]], [0.0])
    with pytest.raises(ValueError, match="features must have at least one row"):
        Domain().check(np.empty((0, 3)), [])


# --- guarantees and releases ------------------------------------------------------------------------

guarantees = st.builds(
    Guarantee,
    kind=st.sampled_from(GUARANTEES),
    epsilon=st.one_of(st.floats(0, 1e6), st.just(math.inf)),
    delta=st.floats(0, 0.999),
    neighbours=st.sampled_from(list(Neighbours)),
    domain=st.one_of(st.none(), st.just(Domain())),
    source=st.text(max_size=5),
)


@reproducible
@given(guarantees)
def test_guarantees_are_values(guarantee):
    assert pickle.loads(pickle.dumps(guarantee)) == guarantee
    assert guarantee.risk_factor >= 1
    if guarantee.epsilon < 700:
        assert guarantee.risk_factor == math.exp(guarantee.epsilon)
    with pytest.raises(AttributeError):
        guarantee.epsilon = 0.0


@reproducible
@given(
    st.dictionaries(st.text(min_size=1), st.floats(1e-6, 1e3), min_size=1, max_size=4), st.floats(1e-3, 10)
)
def test_parts_of_a_guarantee_sum_to_it_and_cannot_be_changed(parts, excess):
    total = sum(parts.values())
    guarantee = Guarantee("ex-ante", total, Neighbours.REPLACE_ONE, parts=parts)
    assert dict(guarantee.parts) == parts
    assert pickle.loads(pickle.dumps(guarantee)) == guarantee
    with pytest.raises(TypeError):
        guarantee.parts["more"] = 1.0
    parts["later"] = 1.0  # the caller's own mapping is not the guarantee's
    assert "later" not in guarantee.parts
    with pytest.raises(ValueError, match="parts must sum to epsilon"):
        Guarantee("ex-ante", total + excess, Neighbours.REPLACE_ONE, parts=guarantee.parts)


@reproducible
@given(st.floats(max_value=0, exclude_max=True), st.one_of(st.floats(1, 10), st.floats(-10, -1e-9)))
def test_impossible_guarantees_are_refused(epsilon, delta):
    for bad in (epsilon, math.nan):
        with pytest.raises(ValueError, match="epsilon must be nonnegative"):
            Guarantee("ex-ante", bad, Neighbours.REPLACE_ONE)
    for bad in (delta, math.nan):
        with pytest.raises(ValueError, match="delta must lie in"):
            Guarantee("ex-ante", 1.0, Neighbours.REPLACE_ONE, delta=bad)
    with pytest.raises(ValueError, match="kind must be one of"):
        Guarantee("forever", 1.0, Neighbours.REPLACE_ONE)
    with pytest.raises(TypeError, match="neighbours must be a Neighbours member"):
        Guarantee("ex-ante", 1.0, "replace-one")


@reproducible
@given(guarantees, st.integers(), st.floats(0, 1), st.one_of(st.none(), st.integers(0, 9)))
def test_a_private_trace_never_leaves_by_accident(guarantee, value, secret, index):
    release = Release(value, guarantee, index, Trace(secret=secret))
    assert release.trace["secret"] == secret
    assert "secret" in repr(release.trace)
    assert repr(secret) not in repr(release.trace)
    for item in (release, release.trace):
        with pytest.raises(TypeError, match="private"):
            pickle.dumps(item)
    public = release.public()
    assert len(public.trace) == 0
    copy = pickle.loads(pickle.dumps(public))
    assert copy == public == release  # the trace is not part of what a release is
    assert (copy.value, copy.guarantee, copy.index) == (value, guarantee, index)
    assert len(copy.trace) == 0


@reproducible
@given(guarantees, st.text())
def test_a_refusal_is_a_release_with_its_own_guarantee(guarantee, reason):
    release = Release(Refused(reason), guarantee)
    assert release.refused
    assert pickle.loads(pickle.dumps(release)) == release
    assert not Release(None, guarantee).refused


@pytest.mark.parametrize("bound", [np.int8(100), np.uint8(255), np.int32(100_000)])
def test_bounds_are_kept_as_floats(bound):
    """An 8-bit bound would overflow where it is squared, and the sensitivity would be too small."""
    domain = Domain("l2", bound)
    assert type(domain.feature_bound) is float
    assert domain.feature_bound**2 == float(bound) ** 2


@pytest.mark.parametrize("bound", [1e-200, 1e200])
def test_bounds_whose_squares_are_no_floats_are_refused(bound):
    """Norms below 1e-154 underflow to zero and would pass any such bound."""
    with pytest.raises(ValueError, match="feature_bound"):
        Domain("l2", bound)


@pytest.mark.parametrize("classes", [1.0, 2.5, 0.5])
def test_number_of_classes_is_whole(classes):
    """Half a class has no meaning."""
    with pytest.raises(ValueError, match="number of classes"):
        Domain("l2", 1.0, "class", classes)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"epsilon": True}, TypeError),
        ({"epsilon": "1"}, TypeError),
        ({"delta": "0"}, TypeError),
        ({"parts": {"a": 5.0, "b": -4.0}}, ValueError),
        ({"domain": "junk"}, TypeError),
    ],
)
def test_guarantee_refuses_what_is_no_number(change, error):
    """Each refusal names the field."""
    arguments = {"kind": "ex-ante", "epsilon": 1.0, "neighbours": Neighbours.REPLACE_ONE} | change
    with pytest.raises(error):
        Guarantee(**arguments)


# --- a guarantee with a whole curve -----------------------------------------------------------------


@dataclass(frozen=True)
class ExponentialCurve:
    """A made-up profile: delta = scale * exp(-epsilon)."""

    scale: float = 0.5

    def delta(self, epsilon):
        return self.scale * math.exp(-epsilon)

    def epsilon(self, delta):
        return max(0.0, math.log(self.scale / delta))


def with_curve(curve, epsilon, delta):
    return Guarantee("ex-ante", epsilon, Neighbours.ADD_REMOVE, delta, curve=curve)


@reproducible
@given(st.floats(1e-3, 1.0), st.floats(0.0, 50.0), st.floats(1e-6, 1.0))
def test_a_guarantee_may_promise_less_than_its_curve_but_not_more(scale, epsilon, gap):
    curve = ExponentialCurve(scale)
    assert isinstance(curve, PrivacyCurve)
    needed = curve.delta(epsilon)
    if needed < 1:
        exact = with_curve(curve, epsilon, needed)
        assert exact.curve is curve
    if needed * (1 + gap) < 1:
        assert with_curve(curve, epsilon, needed * (1 + gap)).delta > needed
    with pytest.raises(ValueError, match=r"curve needs delta .* above the delta that is promised"):
        with_curve(curve, epsilon, needed * (1 - min(gap, 0.5)))
    with pytest.raises(ValueError, match="curve needs delta"):
        with_curve(curve, epsilon, 0.0)


def test_a_guarantee_with_a_curve_travels_between_processes():
    guarantee = with_curve(ExponentialCurve(), 3, 0.1)
    copy = pickle.loads(pickle.dumps(guarantee))
    assert copy == guarantee
    assert copy.curve == ExponentialCurve()
    assert copy != with_curve(None, 3, 0.1)
    release = Release(1.0, guarantee)
    assert pickle.loads(pickle.dumps(release)).guarantee.curve == ExponentialCurve()


def test_an_infinite_epsilon_promises_nothing_that_a_curve_could_break():
    assert with_curve(ExponentialCurve(), math.inf, 0.0).curve == ExponentialCurve()


@pytest.mark.parametrize("bad", [1.0, "curve", object(), [], ExponentialCurve])
def test_what_is_no_curve_is_refused(bad):
    for epsilon in (1.0, math.inf):
        with pytest.raises(TypeError, match="curve must have methods delta and epsilon"):
            with_curve(bad, epsilon, 0.5)


@pytest.mark.parametrize("scale", [math.nan, -1.0, math.inf])
def test_a_curve_that_returns_no_probability_is_refused(scale):
    with pytest.raises(ValueError, match="curve needs delta"):
        with_curve(ExponentialCurve(scale), 1.0, 0.9)
