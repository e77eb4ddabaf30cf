"""Headcount's mechanisms: the privacy mathematics as pure functions on NumPy and Arrow, without Beam.

A factory takes a budget and gives a mechanism: `guarantee()` says what it promises, `run(batches, release)` gives the rows.

    histogram = private_histogram(Budget(epsilon=1, delta=1e-8), bound=10)
    counts = histogram.run([contribution_batch(users, items)], Release(ephemeral_key()))

The names of `__all__` are public; each is imported when it is first asked for, so that `Budget` costs no NumPy. Everything
deeper is private, and may move any day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.mechanisms.lazy import lazy_face

if TYPE_CHECKING:  # the same names for type checkers; tests/mechanisms/test_face.py holds both lists together
    from headcount.mechanisms.accounting.budget import Budget as Budget
    from headcount.mechanisms.accounting.budget import Zcdp as Zcdp
    from headcount.mechanisms.accounting.filters import BudgetExceeded as BudgetExceeded
    from headcount.mechanisms.accounting.filters import ZcdpFilter as ZcdpFilter
    from headcount.mechanisms.accounting.guarantee import Guarantee as Guarantee
    from headcount.mechanisms.accounting.guarantee import compose as compose
    from headcount.mechanisms.accounting.relation import Relation as Relation
    from headcount.mechanisms.accounting.totals import total_delta as total_delta
    from headcount.mechanisms.accounting.totals import total_epsilon as total_epsilon
    from headcount.mechanisms.aggregate.metrics import Metric as Metric
    from headcount.mechanisms.aggregate.metrics import parse_metric as parse_metric
    from headcount.mechanisms.aggregate.release import aggregate as private_aggregate  # noqa: F401
    from headcount.mechanisms.batches.contributions import contribution_batch as contribution_batch
    from headcount.mechanisms.bound_choice.by_name.methods import choose_public_domain as choose_public_domain
    from headcount.mechanisms.bound_choice.by_name.methods import choose_unknown_domain as choose_unknown_domain
    from headcount.mechanisms.calibration.bound import Bound as Bound
    from headcount.mechanisms.calibration.noise import calibrate_public_domain as calibrate_public_domain
    from headcount.mechanisms.calibration.noise import calibrate_unknown_domain as calibrate_unknown_domain
    from headcount.mechanisms.calibration.noise_plan import NoisePlan as NoisePlan
    from headcount.mechanisms.choice.protocol import ChosenBound as ChosenBound
    from headcount.mechanisms.choice.run import choose_bound as choose_bound
    from headcount.mechanisms.columns.value_ranges import value_columns as value_columns
    from headcount.mechanisms.count_release.papers.plume import plume as plume
    from headcount.mechanisms.count_release.release import count_release as private_count_release  # noqa: F401
    from headcount.mechanisms.count_release.top_names import top_items as top_items
    from headcount.mechanisms.counting.quality import Quality as Quality
    from headcount.mechanisms.distribution.learn import learn_distribution as learn_distribution
    from headcount.mechanisms.errors import HeadcountError as HeadcountError
    from headcount.mechanisms.errors import InputError as InputError
    from headcount.mechanisms.errors import ParameterError as ParameterError
    from headcount.mechanisms.histogram.factory import histogram as private_histogram  # noqa: F401
    from headcount.mechanisms.histogram.papers.debiased import debiased_count as debiased_count
    from headcount.mechanisms.histogram.total import total as total
    from headcount.mechanisms.mechanism import Mechanism as Mechanism
    from headcount.mechanisms.partitions.auto import auto_partitions as auto_partitions
    from headcount.mechanisms.partitions.select import select_partitions as select_partitions
    from headcount.mechanisms.people.ask import actives as actives
    from headcount.mechanisms.people.ask import activity as activity
    from headcount.mechanisms.people.ask import funnel as funnel
    from headcount.mechanisms.people.ask import retention as retention
    from headcount.mechanisms.randomness.keys import KeyEnvironment as KeyEnvironment
    from headcount.mechanisms.randomness.keys import KeyFile as KeyFile
    from headcount.mechanisms.randomness.keys import KeySecret as KeySecret
    from headcount.mechanisms.randomness.keys import Release as Release
    from headcount.mechanisms.randomness.keys import ephemeral_key as ephemeral_key
    from headcount.mechanisms.randomness.keys import write_key_file as write_key_file
    from headcount.mechanisms.randomness.noise import discrete_gaussian as discrete_gaussian
    from headcount.mechanisms.randomness.noise import discrete_laplace as discrete_laplace
    from headcount.mechanisms.randomness.system import SystemLanes as SystemLanes
    from headcount.mechanisms.sampled.auto import heavy_hitters as heavy_hitters
    from headcount.mechanisms.sampled.auto import sampled_histogram as sampled_histogram
    from headcount.mechanisms.sampled.papers.cohorts import draw_cohort as draw_cohort
    from headcount.mechanisms.sampled.quantiles import quantile_hierarchy as quantile_hierarchy
    from headcount.mechanisms.sampled.quantiles import quantile_search as quantile_search
    from headcount.mechanisms.shape.auto import shape_histogram as shape_histogram
    from headcount.mechanisms.shape.distinct import distinct_items as distinct_items
    from headcount.mechanisms.shape.estimators import CoverageQuestion as CoverageQuestion
    from headcount.mechanisms.shape.estimators import DistinctQuestion as DistinctQuestion
    from headcount.mechanisms.shape.estimators import EntropyQuestion as EntropyQuestion
    from headcount.mechanisms.shape.estimators import SupportQuestion as SupportQuestion
    from headcount.mechanisms.shape.papers.pan_private import pan_private_counts as pan_private_counts
    from headcount.mechanisms.shape.papers.shuffled import shuffled as shuffled
    from headcount.mechanisms.shape.properties import central_property as central_property
    from headcount.mechanisms.shape.properties import shape_properties as shape_properties

# Where the public names live.
_ROOMS = {
    "accounting.budget": "Budget Zcdp",
    "accounting.filters": "BudgetExceeded ZcdpFilter",
    "accounting.guarantee": "Guarantee compose",
    "accounting.relation": "Relation",
    "aggregate.metrics": "Metric parse_metric",
    "aggregate.release": "private_aggregate",
    "accounting.totals": "total_delta total_epsilon",
    "calibration.bound": "Bound",
    "calibration.noise": "calibrate_public_domain calibrate_unknown_domain",
    "calibration.noise_plan": "NoisePlan",
    "batches.contributions": "contribution_batch",
    "bound_choice.by_name.methods": "choose_public_domain choose_unknown_domain",
    "choice.protocol": "ChosenBound",
    "choice.run": "choose_bound",
    "columns.value_ranges": "value_columns",
    "count_release.papers.plume": "plume",
    "count_release.release": "private_count_release",
    "count_release.top_names": "top_items",
    "counting.quality": "Quality",
    "distribution.learn": "learn_distribution",
    "errors": "HeadcountError InputError ParameterError",
    "histogram.factory": "private_histogram",
    "histogram.papers.debiased": "debiased_count",
    "histogram.total": "total",
    "mechanism": "Mechanism",
    "partitions.auto": "auto_partitions",
    "partitions.select": "select_partitions",
    "people.ask": "actives activity funnel retention",
    "randomness.keys": "KeyEnvironment KeyFile KeySecret Release ephemeral_key write_key_file",
    "randomness.noise": "discrete_gaussian discrete_laplace",
    "randomness.system": "SystemLanes",
    "sampled.auto": "heavy_hitters sampled_histogram",
    "sampled.papers.cohorts": "draw_cohort",
    "sampled.quantiles": "quantile_hierarchy quantile_search",
    "shape.auto": "shape_histogram",
    "shape.distinct": "distinct_items",
    "shape.estimators": "CoverageQuestion DistinctQuestion EntropyQuestion SupportQuestion",
    "shape.papers.pan_private": "pan_private_counts",
    "shape.properties": "central_property shape_properties",
    "shape.papers.shuffled": "shuffled",
}

# Names that are another one at home: here, that would be the family's own package.
_AT_HOME = {
    "private_aggregate": "aggregate",
    "private_count_release": "count_release",
    "private_histogram": "histogram",
}

__all__, __getattr__, __dir__ = lazy_face(__name__, _ROOMS, _AT_HOME)
