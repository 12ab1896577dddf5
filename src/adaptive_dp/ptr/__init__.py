"""Chapter 3, "Generalized propose-test-release": tests on the privacy loss itself.

Source: redberg2023, chapter 3 and appendix B, with errata 11 to 20. Neighbours add or remove one record; in PATE one
teacher changes her vote.

The walk of the chapter: a proposal, a private test of the loss that a mechanism has on these data, and a release or
a refusal under one guarantee (:func:`generalized_ptr`); the choice among many proposals (:func:`private_selection`);
and four applications, ``ops_ptr.ops_ptr``, ``pate_ptr.pate_ptr``, :func:`logistic_ptr`, :func:`private_pca`. Formulas
that are false as printed live in modules named ``flaws_...`` and are never used.
"""

from adaptive_dp.ptr.classic import propose_test_release, release_if_stable
from adaptive_dp.ptr.distances import Median, Mode, Pairs
from adaptive_dp.ptr.framework import (
    DataDependentMechanism,
    PrivateTest,
    PrivateUpperBound,
    generalized_ptr,
)
from adaptive_dp.ptr.glm import logistic_ptr
from adaptive_dp.ptr.pca import private_pca
from adaptive_dp.ptr.selection import private_selection
from adaptive_dp.ptr.uniform_bound import ptr_with_uniform_bound
from adaptive_dp.ptr.voting import generalized_ptr_vote

__all__ = [
    "DataDependentMechanism",
    "Median",
    "Mode",
    "Pairs",
    "PrivateTest",
    "PrivateUpperBound",
    "generalized_ptr",
    "generalized_ptr_vote",
    "logistic_ptr",
    "private_pca",
    "private_selection",
    "propose_test_release",
    "ptr_with_uniform_bound",
    "release_if_stable",
]
