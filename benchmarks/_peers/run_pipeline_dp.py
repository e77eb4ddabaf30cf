"""PipelineDP with PyDP's noise, on its local backend or, with `beam`, on Beam's local runner.

`noise` is laplace or gaussian, and `select` a strategy of its own. Gaussian noise is by its PLD accountant, which has less of
it than the naive one; Laplace noise by the naive one. Its weighted strategy selects keys but does not aggregate: so it runs
first, with half of the budget, and the aggregate has what it selects as its public keys. Means are asked of it, since its sum
is closer then. It tells the standard deviation of the noise of users alone in that case: intervals are that, times what holds
95 % of such noise.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pipeline_dp
import pyarrow.parquet as pq
from exchange import WIDTHS, Job, serve
from pipeline_dp import partition_selection

WEIGHTED = "WEIGHTED_GAUSSIAN_THRESHOLDING"
EXTRACTORS = pipeline_dp.DataExtractors(
    privacy_id_extractor=lambda row: row[0],
    partition_extractor=lambda row: row[1],
    value_extractor=lambda row: row[2],
)
NAMES = {"users": "privacy_id_count", "events": "count", "sum": "sum", "mean": "mean"}


def release(job: Job) -> dict[str, list[Any]]:
    """The metrics of all keys that it releases."""
    for name in ("create_gaussian_thresholding", "create_weighted_gaussian_thresholding"):
        # It makes a selector for each key, which takes longer than all else: made once, in its favour.
        setattr(partition_selection, name, functools.cache(getattr(partition_selection, name)))
    table = pq.read_table(job.log)
    rows = list(zip(*(table[name].to_pylist() for name in ("user", "item", "value")), strict=True))
    given = job.setting
    if given.get("beam"):
        import apache_beam

        with apache_beam.Pipeline(runner="FnApiRunner") as pipeline:
            made = metrics(pipeline | apache_beam.Create(rows), pipeline_dp.BeamBackend(), job, job.public())
            lines = made | apache_beam.Map(lambda pair: json.dumps([pair[0], pair[1]._asdict()], default=float))
            _ = lines | apache_beam.io.WriteToText(f"{job.output}.beam", num_shards=1, shard_name_template="")
        return columns(list(map(json.loads, Path(f"{job.output}.beam").read_text().splitlines())), given["noise"])
    public, share, local = job.public(), 1.0, pipeline_dp.LocalBackend()
    if public is None and given["select"] == WEIGHTED:
        public, share = selected(rows, job), 0.5
    return columns([(key, each._asdict()) for key, each in metrics(rows, local, job, public, share)], given["noise"])


def selected(rows: list[Any], job: Job) -> list[str]:
    """The keys that the weighted strategy names, with half of the budget."""
    accountant = pipeline_dp.NaiveBudgetAccountant(job.epsilon / 2, job.delta / 2)
    asked = pipeline_dp.SelectPartitionsParams(
        max_partitions_contributed=job.setting["m"],
        partition_selection_strategy=pipeline_dp.PartitionSelectionStrategy[WEIGHTED],
    )
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    found = engine.select_partitions(rows, asked, EXTRACTORS)
    accountant.compute_budgets()
    return list(found)


def metrics(rows: Any, backend: Any, job: Job, public: list[str] | None, share: float = 1.0) -> Any:
    """Users, events, sum and mean of each key, by one call of its own."""
    given, epsilon, delta = job.setting, job.epsilon * share, job.delta * share
    if (
        given["noise"] == "gaussian"
    ):  # in its default steps of 1e-4 it takes minutes, for noise that is the same to 1e-3
        accountant = pipeline_dp.PLDBudgetAccountant(epsilon, delta, pld_discretization=1e-3)
    else:
        accountant = pipeline_dp.NaiveBudgetAccountant(epsilon, 0.0 if public else delta)
    named = pipeline_dp.Metrics
    asked = pipeline_dp.AggregateParams(
        metrics=[named.PRIVACY_ID_COUNT, named.COUNT, named.SUM, named.MEAN],
        noise_kind=pipeline_dp.NoiseKind[given["noise"].upper()],
        max_partitions_contributed=given["m"],
        max_contributions_per_partition=given["c"],
        min_value=job.low,
        max_value=job.high,
        partition_selection_strategy=pipeline_dp.PartitionSelectionStrategy[given.get("select", "TRUNCATED_GEOMETRIC")],
        output_noise_stddev=True,
    )
    made = pipeline_dp.DPEngine(accountant, backend).aggregate(rows, asked, EXTRACTORS, public_partitions=public)
    accountant.compute_budgets()
    return made


def columns(pairs: list[Any], noise: str) -> dict[str, list[Any]]:
    """What it released, by column."""
    made: dict[str, list[Any]] = {"item": [key for key, _ in pairs]}
    for name, theirs in NAMES.items():
        made[name] = [each[theirs] for _, each in pairs]
        stddevs = [each.get(f"{theirs}_noise_stddev") for _, each in pairs]
        made[f"{name}_half"] = [None if stddev is None else WIDTHS[noise] * stddev for stddev in stddevs]
    return made


if __name__ == "__main__":
    serve(release)
