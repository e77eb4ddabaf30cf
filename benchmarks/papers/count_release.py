"""The paper "Private Count Release: A Simple and Scalable Approach for Private Data Analytics": its Figures 1 to 5.

    python benchmarks/papers/count_release.py --data words=FILE --data authors=FILE

Each FILE is Parquet with the columns user, item and count; a set in which every user has one item is generated besides. All
methods count the distinct users of items, with the same rho and delta. *Recall* is the number of results that they return,
*precision* the share of these that is within 10 % of the truth; both are means over the trials.

    PCR             Private Count Release; PCR-Brownian reduces the noise of a count step by step
    Plume 95, 99    names items, then counts them; both bounds are the true percentile of users' distinct items, as in the
                    paper, which is not private; Plume auto chooses the bounds privately
    Plume 99, sips  the same with its items named by three rounds of sips
    ..., threshold  the same, without noisy counts that may be off by more than 10 %
    histogram       Histogram with all chosen, one count per user and item, at the (epsilon, delta) that the zCDP
                    budget implies at a second delta of the same size
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import _path  # noqa: F401
import matplotlib
import numpy as np
import pyarrow as pa
from _laws import LAWS, drawn
from _quality import as_shard, read_batch
from _shared import OUT, write_csv

from headcount.mechanisms.accounting.budget import Zcdp
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bounding.clipping import limit_per_item
from headcount.mechanisms.choice.run import choose_bound
from headcount.mechanisms.count_release.frames import make_frame, sum_users
from headcount.mechanisms.count_release.papers.plume import PlumePlan, PlumeRelease, plume
from headcount.mechanisms.count_release.release import count_release
from headcount.mechanisms.histogram.auto import auto_unbounded_histogram
from headcount.mechanisms.randomness.keys import KeyFile, Release, write_key_file

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

K_BAR = 10_000
WITHIN = 0.1
Method = Callable[[Release], pa.RecordBatch]


class Data:
    """The distinct (user, item) pairs of a set, and the truth."""

    def __init__(self, name: str, batch: pa.RecordBatch) -> None:
        self.name = name
        self.shard = limit_per_item(as_shard(batch), 1)
        self.batch = self.shard.to_batch()
        self.item_type = int if pa.types.is_int64(self.shard.items.type) else str
        users = np.bincount(self.shard.item, minlength=len(self.shard.items))
        self.users = dict(zip(self.shard.items.to_pylist(), users.tolist(), strict=True))
        chunks = [chunk for _, chunk in sum_users(self.batch, 1)]
        self.frame = make_frame(chunks, K_BAR, self.item_type)

    def percentile(self, percent: int) -> int:
        """The true percentile of users' distinct items."""
        return int(np.percentile(self.shard.rows_per_user(), percent))


def one_item_each(users: int = 500_000, items: int = 50_000) -> pa.RecordBatch:
    """Users with one item each, Zipf."""
    weights = np.cumsum(1 / np.arange(1, items + 1))
    item = np.searchsorted(weights, np.random.default_rng(3).random(users) * weights[-1])
    return contribution_batch(pa.array(np.arange(users)), pa.array(item))


def methods(data: Data, zcdp: Zcdp) -> Iterator[tuple[str, Method, float | None]]:
    """Name, method, and the factor of its noise below which the variant with a threshold leaves counts out."""

    def pcr(noise_reduction: bool) -> Method:
        made = count_release(
            zcdp, relative_error=WITHIN, k_bar=K_BAR, noise_reduction=noise_reduction, item_type=data.item_type
        )
        return lambda release: made.release(data.frame, made.subkey(release.key_source.fetch(), release.id, "P")).counts

    yield "PCR", pcr(False), None
    yield "PCR-Brownian", pcr(True), None
    for percent, selection in ((95, "gaussian"), (99, "gaussian"), (99, "sips")):
        made = plume(zcdp, max_items=data.percentile(percent), selection=selection, item_type=data.item_type)
        suffix = ", sips" if selection == "sips" else ""
        yield f"Plume {percent}{suffix}", _given(made, made.plan(), data.shard), (2 + WITHIN) / WITHIN
    yield "Plume auto", _chosen(plume(zcdp, item_type=data.item_type), data), (2 + WITHIN) / WITHIN
    histogram = auto_unbounded_histogram(zcdp.to_budget(zcdp.delta), max_per_item=1, item_type=data.item_type)
    yield "histogram", lambda release: histogram.run([data.batch], release), None


def _given(made: PlumeRelease, plan: PlumePlan, shard: Shard) -> Method:
    return lambda release: made.counts(shard, plan, release, "P")


def _chosen(made: PlumeRelease, data: Data) -> Method:
    def run(release: Release) -> pa.RecordBatch:
        assert made.choice is not None
        chosen = choose_bound([data.batch], made.choice, release, "P/ChooseBound")
        return made.counts(data.shard, made.plan(chosen), release, "P")

    return run


def quality(data: Data, counts: pa.RecordBatch, factor: float = 0.0) -> tuple[int, float]:
    """Results, and the share within 10 % of the truth, of counts of at least this number of standard deviations."""
    count, stddev = (np.asarray(counts.column(name)) for name in ("bounded_count", "noise_stddev"))
    kept = np.flatnonzero(count >= factor * stddev)
    names = counts.column("item").take(pa.array(kept)).to_pylist()
    truth = np.array([data.users[name] for name in names], dtype=float)
    good = np.abs(count[kept] - truth) <= WITHIN * truth
    return len(kept), float(good.mean()) if len(kept) else 1.0


def measure(data: Data, rho: float, args: argparse.Namespace, key: Path) -> list[dict[str, str]]:
    """One line per method."""
    lines, trials = [], args.trials
    for name, method, factor in methods(data, Zcdp(rho, args.delta)):
        if args.methods and name not in args.methods:
            continue
        found = [method(Release(KeyFile(str(key)), f"trial-{trial}")) for trial in range(trials)]
        variants = {name: 0.0} if factor is None else {name: 0.0, f"{name}, threshold": factor}
        for variant, times in variants.items():
            results, precise = zip(*(quality(data, counts, times) for counts in found), strict=True)
            line = {"data": data.name, "rho": f"{rho:g}", "method": variant, "results": f"{np.mean(results):.1f}"}
            line |= {"results_stddev": f"{np.std(results):.1f}", "within_10_percent": f"{np.mean(precise):.4f}"}
            line["good_results"] = f"{np.mean(np.multiply(results, precise)):.1f}"
            print("  ".join(f"{value:>26}" for value in line.values()), flush=True)
            lines.append(line)
    return lines


def plot(lines: list[dict[str, str]], path: Path) -> None:
    """Recall and precision of each method over rho, as in the paper's figures."""
    names = list(dict.fromkeys(line["method"] for line in lines))
    rhos = list(dict.fromkeys(line["rho"] for line in lines))
    figure, panels = plt.subplots(2, 1, figsize=(12, 8), sharex=True)
    for number, name in enumerate(names):
        own = {line["rho"]: line for line in lines if line["method"] == name}
        place = np.arange(len(rhos)) + (number - len(names) / 2) * 0.9 / len(names)
        for panel, column in zip(panels, ("results", "within_10_percent"), strict=True):
            panel.bar(place, [float(own[rho][column]) for rho in rhos], 0.9 / len(names), label=name)
    panels[0].set(title=lines[0]["data"], ylabel="results", yscale="log")
    panels[1].set(ylabel="share within 10 %", xlabel="rho", xticks=np.arange(len(rhos)), xticklabels=rhos)
    panels[0].legend(fontsize=7, ncol=3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    """Measures every set, and writes a table of all and a plot of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--law", action="append", default=[], choices=LAWS, help="made-up data of this shape, too")
    parser.add_argument("--rho", type=float, nargs="+", default=[0.1, 0.5, 1.0])
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help="by their names above (default: all)")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    sets = dict(entry.split("=", 1) for entry in args.data)
    batches = [(name, lambda path=path: read_batch(Path(path))) for name, path in sets.items()]
    batches += [(law, lambda law=law: drawn(law)) for law in args.law]
    batches.append(("one item each", one_item_each))
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "key"
        write_key_file(str(key))
        for name, read in batches:
            data = Data(name, read())
            own = [line for rho in args.rho for line in measure(data, rho, args, key)]
            plot(own, args.out / f"count_release_{name.replace(' ', '_')}.png")
            lines += own
    write_csv(lines, args.out / "count_release.csv")


if __name__ == "__main__":
    main()
