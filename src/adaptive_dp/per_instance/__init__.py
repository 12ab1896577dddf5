"""Chapter 2, "Per-instance privacy": exact losses of objective perturbation and reports of them.

Source: redberg2023, chapter 2 and appendix A, with errata 1 to 10. Neighbours add or remove one record; the ridge
stands beside a sum of losses.

The walk of the chapter: :func:`perturb_objective` publishes theta, :func:`losses_of_members` tells the curator
what it cost each person (private), and a report (:func:`data_independent_report`, :func:`data_dependent_report`,
:func:`adaptive_report`) tells each person without exposing the others.
"""

from adaptive_dp.per_instance.bounds import Scope, determinant_bound, inner_product_width, normal_quantile
from adaptive_dp.per_instance.calibration import (
    LinearPerturbationCurve,
    SmoothPerturbationCurve,
    kifer_calibration,
    sharp_sigma,
)
from adaptive_dp.per_instance.ex_post import (
    LossTerms,
    leverage_scores,
    loss_of_person,
    losses_of_members,
    losses_of_outsiders,
)
from adaptive_dp.per_instance.objective import Objective, ObjectiveAt, perturb_objective
from adaptive_dp.per_instance.releases import (
    release_gradient,
    release_hessian,
    release_smallest_eigenvalue,
)
from adaptive_dp.per_instance.report import (
    PrivacyReport,
    ReportEntry,
    adaptive_report,
    data_dependent_report,
    data_independent_report,
)

__all__ = [
    "LinearPerturbationCurve",
    "LossTerms",
    "Objective",
    "ObjectiveAt",
    "PrivacyReport",
    "ReportEntry",
    "Scope",
    "SmoothPerturbationCurve",
    "adaptive_report",
    "data_dependent_report",
    "data_independent_report",
    "determinant_bound",
    "inner_product_width",
    "kifer_calibration",
    "leverage_scores",
    "loss_of_person",
    "losses_of_members",
    "losses_of_outsiders",
    "normal_quantile",
    "perturb_objective",
    "release_gradient",
    "release_hessian",
    "release_smallest_eigenvalue",
    "sharp_sigma",
]
