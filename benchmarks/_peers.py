"""PipelineDP and OpenDP on one log, each with several settings. Run by `aggregate.py` with the peers' own Python.

    python _peers.py LOG FOLDER LOW HIGH EPSILON DELTA NAME=SETTING ...

LOG is Parquet with the columns user, item and value. For each setting FOLDER gets NAME.parquet with item, users, events, sum
and mean, and a line on standard output tells its wall and processor seconds, with those of imports and reading. SETTING is a
JSON object: `peer`, `m` keys of a user and `c` rows on each, and what else the functions below take.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Found = dict[str, list[Any]]


class PipelineDP:
    """PipelineDP with PyDP's noise, on its local backend or on Beam's local runner.

    `noise` is laplace or gaussian, `select` a strategy of its own, and `account` naive or pld. Its weighted strategy selects
    keys but does not aggregate: so it runs first, with half of the budget, and the aggregate has what it selects as its
    public keys.
    """

    def __init__(self, log: Path, low: float, high: float) -> None:
        import pipeline_dp
        from pipeline_dp import partition_selection

        for name in ("create_gaussian_thresholding", "create_weighted_gaussian_thresholding"):
            # It makes a selector for each key, which takes longer than all else: made once, in its favour.
            setattr(partition_selection, name, functools.cache(getattr(partition_selection, name)))
        self._dp, self._low, self._high = pipeline_dp, low, high
        table = pq.read_table(log)
        self._rows = list(zip(*(table[name].to_pylist() for name in ("user", "item", "value")), strict=True))

    def __call__(self, epsilon: float, delta: float, select: str, beam: bool = False, **given: Any) -> Found:
        """The metrics of all keys that it releases."""
        if beam:
            import apache_beam

            _kept.clear()
            with apache_beam.Pipeline(runner="FnApiRunner") as pipeline:
                rows = pipeline | apache_beam.Create(self._rows)
                made = self._metrics(rows, self._dp.BeamBackend(), epsilon, delta, select, None, **given)
                _ = made | "Keep" >> apache_beam.Map(_kept.append)
            return self._columns(_kept)
        public, backend = None, self._dp.LocalBackend()
        if select == "WEIGHTED_GAUSSIAN_THRESHOLDING":
            epsilon, delta = epsilon / 2, delta / 2
            public = self._selected(epsilon, delta, select, given["m"])
        return self._columns(self._metrics(self._rows, backend, epsilon, delta, select, public, **given))

    def _selected(self, epsilon: float, delta: float, select: str, m: int) -> list[str]:
        dp = self._dp
        accountant = dp.NaiveBudgetAccountant(epsilon, delta)
        asked = dp.SelectPartitionsParams(
            max_partitions_contributed=m, partition_selection_strategy=dp.PartitionSelectionStrategy[select]
        )
        found = dp.DPEngine(accountant, dp.LocalBackend()).select_partitions(self._rows, asked, self._extractors())
        accountant.compute_budgets()
        return list(found)

    def _extractors(self) -> Any:
        return self._dp.DataExtractors(
            privacy_id_extractor=lambda row: row[0],
            partition_extractor=lambda row: row[1],
            value_extractor=lambda row: row[2],
        )

    def _metrics(
        self,
        rows: Any,
        backend: Any,
        epsilon: float,
        delta: float,
        select: str,
        public: list[str] | None,
        m: int,
        c: int,
        noise: str,
        account: str = "naive",
    ) -> Any:
        dp = self._dp
        if account == "pld":  # in its default steps of 1e-4 it takes minutes, for noise that is the same to 1e-3
            accountant = dp.PLDBudgetAccountant(epsilon, delta, pld_discretization=1e-3)
        else:
            accountant = dp.NaiveBudgetAccountant(epsilon, delta)
        asked = dp.AggregateParams(
            metrics=[dp.Metrics.PRIVACY_ID_COUNT, dp.Metrics.COUNT, dp.Metrics.SUM, dp.Metrics.MEAN],
            noise_kind=dp.NoiseKind[noise.upper()],
            max_partitions_contributed=m,
            max_contributions_per_partition=c,
            min_value=self._low,
            max_value=self._high,
            partition_selection_strategy=dp.PartitionSelectionStrategy[select],
        )
        made = dp.DPEngine(accountant, backend).aggregate(rows, asked, self._extractors(), public_partitions=public)
        accountant.compute_budgets()
        return made

    @staticmethod
    def _columns(made: Iterable[Any]) -> Found:
        pairs = list(made)
        return {
            "item": [key for key, _ in pairs],
            "users": [metrics.privacy_id_count for _, metrics in pairs],
            "events": [metrics.count for _, metrics in pairs],
            "sum": [metrics.sum for _, metrics in pairs],
            "mean": [metrics.mean for _, metrics in pairs],
        }


_kept: list[Any] = []  # Beam's local runner has one process: what it made


class OpenDP:
    """OpenDP's Polars context, with Laplace noise, or Gaussian by zero-concentrated privacy.

    Users are sampled before it, uniformly, as its own sample of groups keeps the same groups for everyone. Values are whole
    hundredths: noise for floats is for the rounding of their sums, and drowns them. A mean is a sum by a count, and users with
    one row a key are its rows.
    """

    def __init__(self, log: Path, low: float, high: float) -> None:
        import opendp.prelude as dp
        import polars as pl

        dp.enable_features("contrib")
        self._dp, self._pl, self._ends = dp, pl, (round(100 * low), round(100 * high))
        cents = pl.col("value").mul(100).round().cast(pl.Int64)
        self._rows = pl.read_parquet(log, columns=["user", "item", "value"]).with_columns(cents)

    def __call__(self, epsilon: float, delta: float, m: int, c: int, noise: str) -> Found:
        """The metrics of all keys that it releases."""
        dp, pl = self._dp, self._pl
        pairs = self._rows.select("user", "item").unique()
        own = pairs.filter(pl.int_range(pl.len()).shuffle().over("user") < m)
        rows = self._rows.join(own, on=["user", "item"], how="semi")
        rows = rows.filter(pl.int_range(pl.len()).shuffle().over("user", "item") < c)
        loss = dp.loss_of(epsilon=epsilon, delta=delta)
        if noise == "gaussian":  # half of delta is the threshold's
            loss = dp.loss_of(rho=self._rho(epsilon, delta / 2), delta=delta / 2)
        context = dp.Context.compositor(
            data=rows.lazy(),
            privacy_unit=dp.unit_of(contributions=[dp.polars.Bound(by=["item"], num_groups=m, per_group=c)]),
            privacy_loss=loss,
            split_evenly_over=1,
            margins=[dp.polars.Margin(by=["item"], max_length=10**7, max_groups=10**6)],
        )
        asked = [dp.len(signed=True).alias("events"), pl.col("value").dp.sum(self._ends).alias("sum")]
        asked += [pl.col("user").dp.n_unique(signed=True).alias("users")] if c > 1 else []
        found = context.query().group_by("item").agg(*asked).release().collect()
        users = found["users" if c > 1 else "events"]
        sums = found["sum"] / 100
        columns = {"item": found["item"], "users": users, "events": found["events"], "sum": sums}
        return {name: each.to_list() for name, each in columns.items()} | {"mean": (sums / found["events"]).to_list()}

    def _rho(self, epsilon: float, delta: float) -> float:
        """The largest rho that OpenDP itself converts to (epsilon, delta)."""
        dp = self._dp
        space = dp.atom_domain(T=int), dp.absolute_distance(T=int)

        def enough(rho: float) -> bool:
            made = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=(0.5 / rho) ** 0.5))
            return made.map(1).epsilon(delta) <= epsilon

        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if enough(middle) else (low, middle)
        return low


PEERS = {"PipelineDP": PipelineDP, "OpenDP": OpenDP}


def main() -> None:
    """Runs all settings; those of one peer share imports and the rows, whose time counts for each."""
    log, folder, low, high, epsilon, delta, *settings = sys.argv[1:]
    made: dict[str, tuple[Any, float, float]] = {}
    for name, text in (setting.split("=", 1) for setting in settings):
        given = json.loads(text)
        peer = given.pop("peer")
        if peer not in made:
            wall, cpu = time.monotonic(), time.process_time()
            instance = PEERS[peer](Path(log), float(low), float(high))
            made[peer] = instance, time.monotonic() - wall, time.process_time() - cpu
        run, before, cpu_before = made[peer]
        wall, cpu = time.monotonic(), time.process_time()
        found = run(float(epsilon), float(delta), **given)
        line = {"name": name, "wall": before + time.monotonic() - wall, "cpu": cpu_before + time.process_time() - cpu}
        pq.write_table(pa.table(found), Path(folder) / f"{name}.parquet")
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
