"""The worst pair of neighbours of objective perturbation as a control problem on the line, in closed forms.

By the one-dimensional reduction (redberg2023, errata, S1; proof in the referee's report) the worst pair of neighbours
is a pair of laws on the line. t ~ N(0, 1) is the noise along the record on the data without it, x = t - s(t) the noise
that gives the same output with it, also N(0, 1); s is nonincreasing, |s| <= mu, -kappa <= s' <= 0, and every such s
occurs. Written from either side with P = N(0, 1) in t and Q's density phi(x) x':

    A, record absent:   x = t - s,  x' in [1, 1 + kappa];     B, record present:  x = t + s,  x' in [1 / (1 + kappa), 1]

with s nonincreasing, |s| <= mu and 0 <= -s' <= k, where k = kappa in A and kappa / (1 + kappa) in B. Hockey-stick and
Renyi divergences are integrals of g(t, s, -s'), convex in the speed -s'. So the mixture (1 - f) g(t, s, 0) + f
g(t, s, k), f = -s'/k, is an upper bound, and a path that switches quickly between standing and full speed comes as near
to it as one likes: the supremum is that of the mixture.

**The speed leaves the integrand.** With g0, g1 at speeds 0 and k and the potential Psi(t, s) = (1/k) int_s^mu (g1 - g0)
the integral of the mixture along a path is

    int G(t, s(t)) dt + Psi at the end - Psi at the start,    G = g0 - dPsi/dt,

a function of the state alone, with dG/ds = omega, and omega is elementary. (Where both g0 and g1 of the hockey-stick
divergence are positive, omega is 0: only the ends of an interval matter.) Between two points of t the integral of G at
constant s is in closed form, too. :mod:`~adaptive_dp.objective_perturbation.certified` brackets the supremum with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from scipy.special import dawsn, log_ndtr, ndtr, ndtri

from adaptive_dp.accounting import EPS, gaussian_delta
from adaptive_dp.per_instance.one_dimensional import check_order, renyi_reach
from adaptive_dp.validation import FloatArray, check_choice, check_ordinary, check_real

Direction = Literal["absent", "present"]
DIRECTIONS: tuple[Direction, Direction] = ("absent", "present")
LARGEST_EPSILON = 500.0
SLACK = 1e-9
ROOT_TWO_PI = math.sqrt(2 * math.pi)


class Side(NamedTuple):
    """One direction: x = t + sign s, and x' at full speed."""

    mu: float
    speed: float
    sign: float
    stretch: float


def side_of(mu: float, kappa: float, direction: Direction) -> Side:
    """Return what sets the two directions apart."""
    size, bend = check_ordinary("mu", mu), check_ordinary("kappa", kappa)
    if check_choice("direction", direction, DIRECTIONS) == "absent":
        return Side(size, bend, -1.0, 1 + bend)
    return Side(size, bend / (1 + bend), 1.0, 1 / (1 + bend))


class Integrand(Protocol):
    """Closed forms of one divergence in one direction; t in rows, s in columns."""

    @property
    def side(self) -> Side:
        """The direction."""
        ...

    @property
    def reach(self) -> float:
        """The grid covers |t| <= reach."""
        ...

    @property
    def tail(self) -> float:
        """Largest integral of g beyond the grid."""
        ...

    @property
    def quiet(self) -> float:
        """For |t| up to here Psi and g0 are 0, whatever s."""
        ...

    def standing(self, low: FloatArray, high: FloatArray, s: FloatArray) -> FloatArray:
        """Integral of g0 over [low, high] at constant s."""
        ...

    def moving(self, low: FloatArray, high: FloatArray, s: FloatArray) -> FloatArray:
        """Lower bound of the integral of g1 over [low, high] when s falls at full speed from ``s``."""
        ...

    def potential(self, t: FloatArray, s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Psi(t, s) and a bound of the rounding error of Psi and of ``standing`` near t."""
        ...

    def slope(self, low: FloatArray, high: FloatArray, s: FloatArray, width: float) -> FloatArray:
        """Lower bound of omega over the boxes [low, high] x [s - width, s]."""
        ...

    def charge(self, low: FloatArray, high: FloatArray, gain: FloatArray) -> FloatArray:
        """Bound of the rounding error of ``standing`` and ``moving``."""
        ...

    def divergence(self, total: float) -> float:
        """The divergence that the integral of g is worth."""
        ...


def _mass(low: FloatArray, high: FloatArray) -> FloatArray:
    """Normal probability of [low, high], without cancellation in the tails; 0 where high <= low."""
    low, high = np.broadcast_arrays(low, high)
    used = high > low
    left, right = low[used], high[used]
    flip = left > 0
    left, right = np.where(flip, -right, left), np.where(flip, -left, right)
    answer = np.zeros(low.shape)
    answer[used] = ndtr(right) - ndtr(left)
    return answer


def _density(t: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-0.5 * t * t) / ROOT_TWO_PI)


def _moment_range(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Smallest and largest x phi(x) on [low, high]: it falls, rises between -1 and 1, and falls."""
    ends, peak = (low * _density(low), high * _density(high)), math.exp(-0.5) / ROOT_TWO_PI
    least, most = np.minimum(*ends), np.maximum(*ends)
    return (
        np.where((low < -1) & (high > -1), -peak, least),
        np.where((low < 1) & (high > 1), peak, most),
    )


@dataclass(frozen=True)
class HockeyStick:
    """g = (phi(t) - e^epsilon phi(x) x')_+."""

    side: Side
    epsilon: float

    @property
    def reach(self) -> float:
        """Where the normal tail is a small part of the Gaussian profile, a lower bound."""
        least = float(gaussian_delta(self.epsilon, self.side.mu))
        return min(38.0, 0.5 - float(ndtri(max(1e-5 * least, 1e-300))))

    @property
    def tail(self) -> float:
        """P beyond the grid."""
        return 2 * float(ndtr(-self.reach)) * (1 + 1e-12)

    @property
    def quiet(self) -> float:
        """Where the largest exponent mu |t| + mu^2 / 2 is below both thresholds."""
        return (min(self.thresholds) - self.side.mu**2 / 2) / self.side.mu * (1 - SLACK)

    @property
    def rounding(self) -> float:
        """Relative error of a normal probability out to the end of the grid."""
        return (32 + (self.reach + 2 * self.side.mu) ** 2) * EPS

    @property
    def thresholds(self) -> tuple[float, float]:
        """g0 and g1 are positive where the exponent (x^2 - t^2) / 2 is above these."""
        return self.epsilon, self.epsilon + math.log(self.side.stretch)

    def standing(self, low: FloatArray, high: FloatArray, s: FloatArray) -> FloatArray:
        """P - e^epsilon Q of the half-line on which the loss s' t + s^2/2 is above epsilon."""
        shift = self.side.sign * s
        with np.errstate(divide="ignore", invalid="ignore"):
            root = (self.epsilon - 0.5 * s * s) / shift
        root = np.where(np.isnan(root), 0.0, root)
        start = np.where(shift > 0, np.maximum(low, root), low)
        stop = np.where(shift < 0, np.minimum(high, root), high)
        stop = np.where((shift == 0) & (self.epsilon >= 0), start, np.maximum(start, stop))
        gain = _mass(start, stop) - math.exp(self.epsilon) * _mass(start + shift, stop + shift)
        return np.asarray(np.maximum(gain, 0.0))

    def moving(self, low: FloatArray, high: FloatArray, s: FloatArray) -> FloatArray:
        """(P - e^epsilon Q)_+ of the whole cell."""
        start = low + self.side.sign * s
        stop = start + self.side.stretch * (high - low)
        return np.asarray(np.maximum(_mass(low, high) - math.exp(self.epsilon) * _mass(start, stop), 0.0))

    def potential(self, t: FloatArray, s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """From int_s^mu (phi(t) - c phi(x))_+ with c = e^epsilon and e^epsilon x': closed, as x^2 > t^2 + 2 log c."""
        mu, speed, sign, _ = self.side
        ends = t + sign * s, t + sign * mu
        low, high = np.minimum(*ends), np.maximum(*ends)
        density, parts, touched = _density(t), [], np.zeros(low.shape, dtype=np.bool_)
        for level in self.thresholds:
            square = t * t + 2 * level
            root = np.sqrt(np.maximum(square, 0.0))
            left, right = np.maximum(low, np.minimum(high, -root)), np.minimum(high, np.maximum(low, root))
            right = np.maximum(left, right)
            length = (left - low) + (high - right)
            touched |= length > 0
            parts.append(density * length - math.exp(level) * (_mass(low, left) + _mass(right, high)))
        # In the sets of integration c phi(x) <= phi(t), so that c Phi(-|x|) is at most 1.26 phi(t), or 2.6 across 0.
        error = self.rounding * density * (2 / speed * (2 * mu + 11) + 6)
        return (parts[1] - parts[0]) / speed, np.where(touched, error, 0.0)

    def slope(self, low: FloatArray, high: FloatArray, s: FloatArray, width: float) -> FloatArray:
        """Of sign / k (e^epsilon x' x phi(x) - t phi(t)) where just one of g0 and g1 is positive, of 0 elsewhere."""
        _, speed, sign, stretch = self.side
        corners = [sign * t * r + 0.5 * r * r for t in (low, high) for r in (s - width, s)]
        # r^2/2 is convex: its minimum may lie inside, where it is less by at most width^2 / 8.
        least, most = np.minimum.reduce(corners) - width**2 / 8, np.maximum.reduce(corners)
        bottom, top = min(self.thresholds), max(self.thresholds)
        touched = (most > bottom) & (least < top)
        rows = np.nonzero(touched)[0]
        first, last = (low + sign * s, high + sign * s) if sign < 0 else (low + (s - width), high + s)
        if sign < 0:
            last = last + width
        x_least, x_most = _moment_range(first[touched], last[touched])
        t_least, t_most = (part[rows, 0] for part in _moment_range(low, high))
        scale = math.exp(self.epsilon) * stretch
        bound = (scale * x_least - t_most if sign > 0 else t_least - scale * x_most) / speed
        inside = (least[touched] >= bottom) & (most[touched] <= top)
        answer = np.zeros(touched.shape)
        answer[touched] = np.where(inside, bound, np.minimum(bound, 0.0))
        return answer

    def charge(self, low: FloatArray, high: FloatArray, gain: FloatArray) -> FloatArray:
        """Where something is gained e^epsilon Q is less than P, and tails are at most 1.26 times the density."""
        nearest = np.where((low < 0) & (high > 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
        return np.asarray(np.where(gain > 0, 6 * self.rounding * _density(nearest), 0.0))

    def divergence(self, total: float) -> float:
        """The integral itself."""
        return min(max(total, 0.0), 1.0)


@dataclass(frozen=True)
class Renyi:
    """g = phi(t) (phi(t) / (phi(x) x'))^a with a = order - 1, all of it divided by e^scale."""

    side: Side
    order: float

    @property
    def power(self) -> float:
        """The exponent a."""
        return self.order - 1

    @property
    def scale(self) -> float:
        """Log of the Gaussian's integral times the largest factor of the determinant."""
        determinant = max(0.0, -self.power * math.log(self.side.stretch))
        return 0.5 * self.power * self.order * self.side.mu**2 + determinant

    @property
    def factor(self) -> float:
        """(x'^-a - 1) / k: g1 - g0 = factor * k * g0."""
        return math.expm1(-self.power * math.log(self.side.stretch)) / self.side.speed

    @property
    def reach(self) -> float:
        """Where the tail is below e^-40, and where it is a small part of the Gaussian divergence."""
        stretch = max(self.side.stretch, 1 / self.side.stretch)
        small = max(math.expm1(min(0.5 * self.power * self.order * self.side.mu**2, 1.0)), 1e-12)
        return renyi_reach(self.order, self.side.mu, stretch - 1) + max(0.0, -0.1 * math.log(small))

    @property
    def tail(self) -> float:
        """Both tails under |loss| <= log x' + mu^2/2 + mu |t|."""
        a, mu = self.power, self.side.mu
        worst = max(0.0, -a * math.log(self.side.stretch)) + a * mu * mu / 2 + 0.5 * (a * mu) ** 2
        return math.exp(math.log(2) + worst - self.scale + float(log_ndtr(a * mu - self.reach))) * (1 + 1e-10)

    @property
    def quiet(self) -> float:
        """Nowhere."""
        return -1.0

    @property
    def rounding(self) -> float:
        """Relative error of an exponential of the largest exponent."""
        return (64 + (self.reach + (2 + 2 * self.power) * self.side.mu) ** 2) * EPS

    def standing(self, low: FloatArray, high: FloatArray, s: FloatArray) -> FloatArray:
        """A normal probability: the exponent is linear in t."""
        a, shift = self.power, self.power * self.side.sign * s
        weight = np.exp(0.5 * a * self.order * s * s - self.scale)
        return np.asarray(weight * _mass(low - shift, high - shift))

    def moving(self, low: FloatArray, high: FloatArray, s: FloatArray) -> FloatArray:
        """P^order Q^-a of the whole cell."""
        start = low + self.side.sign * s
        p, q = _mass(low, high), _mass(start, start + self.side.stretch * (high - low))
        good = (p > 0) & (q > 0)
        p, q = np.where(good, p, 1.0), np.where(good, q, 1.0)
        return np.where(good, np.exp(self.order * np.log(p) - self.power * np.log(q) - self.scale), 0.0)

    def potential(self, t: FloatArray, s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """With Dawson's integral D: int e^(a x^2 / 2) dx = sqrt(2 / a) e^(a x^2 / 2) D(x sqrt(a / 2))."""
        mu, a, sign = self.side.mu, self.power, self.side.sign
        root = math.sqrt(a / 2)

        def primitive(shift: FloatArray | float) -> FloatArray:
            x = t + sign * shift
            exponent = -0.5 * t * t + a * (sign * t * shift + 0.5 * np.square(shift)) - self.scale
            return np.asarray(np.exp(exponent) * dawsn(root * x) / (root * ROOT_TWO_PI))

        end, start = primitive(mu), primitive(s)
        error = self.rounding * ((abs(self.factor) + 1) * (np.abs(end) + np.abs(start)))
        peak = np.exp(-0.5 * t * t + a * (mu * np.abs(t) + 0.5 * mu * mu) - self.scale)
        return self.factor * sign * (end - start), error + self.rounding * peak

    def slope(self, low: FloatArray, high: FloatArray, s: FloatArray, width: float) -> FloatArray:
        """Of g0 (a sign x + factor (a sign s - t)): a product of a positive function and a linear one."""
        a, sign, factor = self.power, self.side.sign, self.factor
        linear = [
            a * (sign * t + r) + factor * (a * sign * r - t) for t in (low, high) for r in (s - width, s)
        ]
        peaks = []
        for r in (s - width, s):
            t = np.clip(a * sign * r, low, high)
            peaks.append(-0.5 * t * t + a * (sign * t * r + 0.5 * r * r) - self.scale)
        # Positive lower bounds are given away: they only matter at full speed.
        most = np.exp(np.maximum(*peaks)) / ROOT_TWO_PI
        return np.asarray(most * np.minimum(np.minimum.reduce(linear), 0.0) * (1 + 1e-9))

    def charge(self, low: FloatArray, high: FloatArray, gain: FloatArray) -> FloatArray:
        """Relative to the density of the piece: a normal probability is as wrong as its larger tail is."""
        return np.asarray(4 * self.order * self.rounding * gain * (1 + 1 / (high - low)))

    def divergence(self, total: float) -> float:
        """Log of the integral over a."""
        return max(0.0, (math.log(total) + self.scale) / self.power) if total > 0 else 0.0


def hockey_stick(mu: float, kappa: float, epsilon: float, direction: Direction) -> HockeyStick:
    """The hockey-stick divergence of one direction, checked."""
    level = check_real("epsilon", epsilon)
    if abs(level) > LARGEST_EPSILON:
        raise ValueError(f"epsilon must lie within {LARGEST_EPSILON:g} of 0, got {level!r}")
    return HockeyStick(side_of(mu, kappa, direction), level)


def renyi_integrand(mu: float, kappa: float, order: float, direction: Direction) -> Renyi:
    """The Renyi divergence of one direction, checked."""
    integrand = Renyi(side_of(mu, kappa, direction), check_order(order))
    if integrand.power * integrand.side.mu > 100:
        raise ValueError(f"order must be at most 1 + 100 / mu = {1 + 100 / mu:.6g}, got {order!r}")
    return integrand
