"""The choice of the ranges of values, wired: it follows that of the bounds, and the sums stand beyond its barrier."""

from __future__ import annotations

import apache_beam as beam

from headcount.mechanisms.aggregate.ranges import ChosenEnds
from headcount.mechanisms.aggregate.stages import AggregatePlan, AggregateStages
from headcount.mechanisms.batches.domain import Domain
from headcount.mechanisms.batches.value_rows import unpack_values
from headcount.mechanisms.choice.run import encode_table
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.barrier import beside
from headcount.transforms.core.choice import Choose
from headcount.transforms.core.noise import NamedBatches


def plan_in_range(
    plan: beam.PCollection,
    rows: beam.PCollection,
    named: beam.pvalue.AsList | Domain,
    stages: AggregateStages,
    release: Release,
    shards: int,
) -> beam.PCollection:
    """The one plan, with the ranges that are chosen from packed shards of the rows on named keys."""
    assert stages.ranges_choice is not None
    noise = plan | "RangesTable" >> beam.Map(_public_table, stages, named).with_output_types(bytes)
    choose = Choose(stages.ranges_choice, release, shards, ChosenEnds, noise, unpack=unpack_values)
    chosen = (rows | "ChooseRanges" >> choose).chosen
    before = beam.pvalue.AsSingleton(beside(plan, "BoundsBeside"))
    return chosen | "PlanInRange" >> beam.Map(_in_range, before, stages).with_output_types(AggregatePlan)


def _public_table(plan: AggregatePlan, stages: AggregateStages, named: NamedBatches | Domain) -> bytes:
    keys = len(named) if isinstance(named, Domain) else sum(batch.num_rows for _, batch in named)
    return encode_table(stages.ranges_table(plan, keys))


def _in_range(ranges: ChosenEnds, plan: AggregatePlan, stages: AggregateStages) -> AggregatePlan:
    return stages.plan(plan.names, plan.kept, ranges)
