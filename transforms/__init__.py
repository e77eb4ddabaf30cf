"""Headcount's transforms: user-level differentially private counting for Apache Beam pipelines.

For all data sets D, D' that differ in one user's rows, and any set S of results of a transform with Budget(epsilon, delta):

    P[result(D) in S] <= exp(epsilon) * P[result(D') in S] + delta

up to the strength of the cipher that the noise is drawn from, and given a secret key, one release id per input and a job
that ended. Each transform states its own `guarantee()` before anything runs.

The names of `__all__` are public; each is imported when it is first asked for, so that a job waits for its own family only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.mechanisms.lazy import lazy_face

if TYPE_CHECKING:  # the same names for type checkers; tests/transforms/test_face.py holds both lists together
    from headcount.mechanisms.accounting.budget import Budget as Budget
    from headcount.mechanisms.accounting.budget import Zcdp as Zcdp
    from headcount.mechanisms.accounting.guarantee import Guarantee as Guarantee
    from headcount.mechanisms.accounting.guarantee import compose as compose
    from headcount.mechanisms.accounting.relation import Relation as Relation
    from headcount.mechanisms.calibration.bound import Bound as Bound
    from headcount.mechanisms.choice.protocol import ChosenBound as ChosenBound
    from headcount.mechanisms.randomness.keys import KeyEnvironment as KeyEnvironment
    from headcount.mechanisms.randomness.keys import KeyFile as KeyFile
    from headcount.mechanisms.randomness.keys import KeySecret as KeySecret
    from headcount.mechanisms.randomness.keys import Release as Release
    from headcount.mechanisms.randomness.windows import Windows as Windows
    from headcount.transforms.aggregate.release import Aggregate as Aggregate
    from headcount.transforms.bound_choice import ChooseBound as ChooseBound
    from headcount.transforms.bounding import ClipNorm as ClipNorm
    from headcount.transforms.bounding import LimitItems as LimitItems
    from headcount.transforms.bounding import LimitPerItem as LimitPerItem
    from headcount.transforms.bounding import RandClip as RandClip
    from headcount.transforms.core.contributions import Contributions as Contributions
    from headcount.transforms.core.domain import DomainFile as DomainFile
    from headcount.transforms.core.rows import DistinctCount as DistinctCount
    from headcount.transforms.core.rows import Estimate as Estimate
    from headcount.transforms.core.rows import IntEstimate as IntEstimate
    from headcount.transforms.core.rows import IntItemProbability as IntItemProbability
    from headcount.transforms.core.rows import ItemProbability as ItemProbability
    from headcount.transforms.core.rows import ItemsWithCount as ItemsWithCount
    from headcount.transforms.core.rows import NamedIntItem as NamedIntItem
    from headcount.transforms.core.rows import NamedItem as NamedItem
    from headcount.transforms.core.rows import NoisyCount as NoisyCount
    from headcount.transforms.core.rows import NoisyIntCount as NoisyIntCount
    from headcount.transforms.core.rows import QuantileTime as QuantileTime
    from headcount.transforms.core.rows import QuantileValue as QuantileValue
    from headcount.transforms.core.rows import RangeCount as RangeCount
    from headcount.transforms.core.rows import RangeTimeCount as RangeTimeCount
    from headcount.transforms.core.rows import RankedIntItem as RankedIntItem
    from headcount.transforms.core.rows import RankedItem as RankedItem
    from headcount.transforms.core.rows import SampledCount as SampledCount
    from headcount.transforms.core.rows import SampledIntCount as SampledIntCount
    from headcount.transforms.core.rows import ShapeProperty as ShapeProperty
    from headcount.transforms.core.rows import TotalCount as TotalCount
    from headcount.transforms.count_release import PrivateCountRelease as PrivateCountRelease
    from headcount.transforms.count_release import TopItems as TopItems
    from headcount.transforms.distribution import LearnDistribution as LearnDistribution
    from headcount.transforms.histogram import Histogram as Histogram
    from headcount.transforms.histogram import NoisyCounts as NoisyCounts
    from headcount.transforms.papers.debiased_count import DebiasedCount as DebiasedCount
    from headcount.transforms.papers.pan_private import PanPrivateCounts as PanPrivateCounts
    from headcount.transforms.papers.plume import Plume as Plume
    from headcount.transforms.papers.shuffled import ShuffledReports as ShuffledReports
    from headcount.transforms.partitions import SelectPartitions as SelectPartitions
    from headcount.transforms.people.questions import Actives as Actives
    from headcount.transforms.people.questions import Activity as Activity
    from headcount.transforms.people.questions import Funnel as Funnel
    from headcount.transforms.people.questions import Retention as Retention
    from headcount.transforms.people.rows import ActiveUsers as ActiveUsers
    from headcount.transforms.people.rows import ActivityBin as ActivityBin
    from headcount.transforms.people.rows import CohortAge as CohortAge
    from headcount.transforms.people.rows import FunnelStep as FunnelStep
    from headcount.transforms.sampled.quantiles import Quantile as Quantile
    from headcount.transforms.sampled.quantiles import Quantiles as Quantiles
    from headcount.transforms.sampled.release import HeavyHitters as HeavyHitters
    from headcount.transforms.sampled.release import SampledHistogram as SampledHistogram
    from headcount.transforms.shape.answers import PropertiesOfShape as PropertiesOfShape
    from headcount.transforms.shape.properties import DistinctItems as DistinctItems
    from headcount.transforms.shape.properties import Entropy as Entropy
    from headcount.transforms.shape.properties import SupportCoverage as SupportCoverage
    from headcount.transforms.shape.properties import SupportSize as SupportSize
    from headcount.transforms.shape.release import AnonymizedHistogram as AnonymizedHistogram
    from headcount.transforms.total import Total as Total

# Where the public names live.
_ROOMS = {
    "headcount.mechanisms.calibration.bound": "Bound",
    "headcount.mechanisms.accounting.budget": "Budget Zcdp",
    "headcount.mechanisms.accounting.guarantee": "Guarantee compose",
    "headcount.mechanisms.accounting.relation": "Relation",
    "headcount.mechanisms.choice.protocol": "ChosenBound",
    "headcount.mechanisms.randomness.keys": "KeyEnvironment KeyFile KeySecret Release",
    "headcount.mechanisms.randomness.windows": "Windows",
    "aggregate.release": "Aggregate",
    "bound_choice": "ChooseBound",
    "bounding": "ClipNorm LimitItems LimitPerItem RandClip",
    "core.contributions": "Contributions",
    "core.domain": "DomainFile",
    "core.rows": "DistinctCount Estimate IntEstimate IntItemProbability ItemProbability ItemsWithCount "
    "NamedIntItem NamedItem NoisyCount NoisyIntCount QuantileTime QuantileValue RangeCount "
    "RangeTimeCount RankedIntItem RankedItem SampledCount SampledIntCount ShapeProperty "
    "TotalCount",
    "count_release": "PrivateCountRelease TopItems",
    "distribution": "LearnDistribution",
    "histogram": "Histogram NoisyCounts",
    "papers.debiased_count": "DebiasedCount",
    "papers.pan_private": "PanPrivateCounts",
    "papers.plume": "Plume",
    "papers.shuffled": "ShuffledReports",
    "partitions": "SelectPartitions",
    "people.questions": "Actives Activity Funnel Retention",
    "people.rows": "ActiveUsers ActivityBin CohortAge FunnelStep",
    "sampled.quantiles": "Quantile Quantiles",
    "sampled.release": "HeavyHitters SampledHistogram",
    "shape.release": "AnonymizedHistogram",
    "shape.answers": "PropertiesOfShape",
    "shape.properties": "DistinctItems Entropy SupportCoverage SupportSize",
    "total": "Total",
}

__all__, __getattr__, __dir__ = lazy_face(__name__, _ROOMS)
