"""The paper "Anonymized Histograms in Intermediate Privacy Models": its error bounds, measured.

    python benchmarks/papers/anonymized.py                       # synthetic data
    python benchmarks/papers/anonymized.py --data words=FILE --data authors=FILE
    python benchmarks/papers/anonymized.py --parts table epsilon --trials 50

Parts: table (l1 error against the number of users), epsilon (against epsilon), hashing (Algorithm 2), properties (entropy,
distinct items and coverage), data (the files: Parquet with the columns user, item and count). Each writes a CSV and a plot.

Errors are means over the trials, with the stddev of one trial beside. *l1* is the distance of the sorted counts. "naive" is
the noisy histogram itself, negative counts cut off; "Algorithm 1" is the shape that is nearest to the unbiased numbers, as in
the paper; "l1" is mode l1, the most likely shape of the same noisy cells, and "Algorithm 2" that of buckets; "sorted" is mode
central. Two reference values stand beside them: `reference` was measured with another implementation on few runs (5 to 15;
one run has a stddev of a third of the mean), and `reference_100` is that implementation's mean over 100 runs, where there is
one.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import _path  # noqa: F401
import matplotlib
import numpy as np
import pyarrow as pa
from _quality import as_shard, read_batch
from _shared import OUT, write_csv

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bounding.clipping import limit_items, limit_per_item
from headcount.mechanisms.shape import hashed
from headcount.mechanisms.shape.anonymized import anonymized_histogram, noise_parameter
from headcount.mechanisms.shape.estimators import CoverageQuestion, DistinctQuestion, EntropyQuestion, Question
from headcount.mechanisms.shape.hashed import bucket_shape, hashed_histogram
from headcount.mechanisms.shape.isotonic import nearest_shape
from headcount.mechanisms.shape.properties import ShapeProperties, central_property
from headcount.mechanisms.shape.tallies import Tally, l1_distance, make_tally, of_cells
from headcount.mechanisms.shape.tally_noise import noisy_tally

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

NOTHING = make_tally(np.zeros(0, dtype=np.int64))
Counts = np.ndarray
Draw = Callable[[int, np.random.Generator], Counts]


def zipf(n: int, rng: np.random.Generator) -> Counts:
    """n users over n items by 1/rank."""
    weights = 1 / np.arange(1, n + 1)
    return rng.multinomial(n, weights / weights.sum())


def uniform(n: int, rng: np.random.Generator) -> Counts:
    """n users over n items alike."""
    return rng.multinomial(n, np.full(n, 1 / n))


def staircase(n: int, rng: np.random.Generator) -> Counts:
    """One item of one user, one of two, one of three, up to n users."""
    steps = np.arange(1, int(np.sqrt(2 * n)) + 1)
    return steps[np.cumsum(steps) <= n]


def uniform_over_twice(n: int, rng: np.random.Generator) -> Counts:
    """n users over 2n items alike."""
    return rng.multinomial(n, np.full(2 * n, 0.5 / n))


def distinct(n: int, rng: np.random.Generator) -> Counts:
    """Every user with an item of its own."""
    return np.ones(n, dtype=np.int64)


def heavy(n: int, rng: np.random.Generator) -> Counts:
    """n users by Zipf's law of exponent 1.3."""
    return np.unique(rng.zipf(1.3, n), return_counts=True)[1]


LAWS: dict[str, Draw] = {"zipf": zipf, "uniform": uniform, "staircase": staircase}
HASHED: dict[str, Draw] = {"uniform over 2n": uniform_over_twice, "distinct": distinct, "zipf 1.3": heavy}

# At epsilon 1 under REPLACE with as many cells as users: naive, Algorithm 1, sorted.
REFERENCE = {
    ("zipf", 1000): (793, 259, 90),
    ("zipf", 10_000): (8330, 931, 269),
    ("zipf", 100_000): (84330, 3529, 694),
    ("uniform", 1000): (745, 183, 91),
    ("uniform", 10_000): (7600, 718, 103),
    ("uniform", 100_000): (75410, 2688, 165),
    ("staircase", 1000): (943, 146, 81),
    ("staircase", 10_000): (9573, 445, 190),
    ("staircase", 100_000): (95990, 1605, 579),
}
REFERENCE_100 = {("zipf", 10_000): 951, ("uniform", 10_000): 821, ("staircase", 10_000): 517}
# n = 10,000: by relation, law and epsilon.
REFERENCE_EPSILON = {
    ("replace", "zipf"): (5210, 2831, 859, 309),
    ("replace", "uniform"): (5581, 1734, 611, 258),
    ("add-remove", "zipf"): (2327, 1076, 359, 131),
    ("add-remove", "uniform"): (2798, 832, 272, 112),
}
EPSILONS = (0.25, 0.5, 1.0, 2.0)
# n = 30,000 at epsilon 1 under REPLACE: buckets, without and with the inversion.
REFERENCE_HASHED = {
    ("uniform over 2n", 4): (5168, 2352),
    ("distinct", 4): (8060, 1955),
    ("distinct", 1): (21730, 972),
    ("zipf 1.3", 4): (2989, 2970),
}


def key(*words: object) -> bytes:
    """A key for each trial: a benchmark is to be repeatable."""
    return hashlib.blake2b(repr(words).encode(), digest_size=32).digest()


def tally_of(counts: Counts) -> Tally:
    """The tally of the items that somebody has."""
    return make_tally(counts[counts > 0])


def distance(rows: pa.RecordBatch | Tally, counts: Counts) -> int:
    """The l1 distance of sorted counts."""
    shape = rows if isinstance(rows, Tally) else Tally(*(np.asarray(rows.column(k)) for k in ("count", "items")))
    return l1_distance(shape, tally_of(counts))


def modes(counts: Counts, cells: int, epsilon: float, relation: Relation, own: bytes) -> Iterator[tuple[str, int]]:
    """The l1 error of each way, in one trial."""
    tally = tally_of(counts)
    first = anonymized_histogram(Budget(epsilon), domain_size=cells, mode="l1", relation=relation)
    noisy = noisy_tally(of_cells(tally, cells), first.plan.scale, own)
    above = noisy.values > 0
    yield "naive", distance(Tally(noisy.values[above], noisy.cells[above]), counts)
    yield "Algorithm 1", distance(nearest_shape(noisy, noise_parameter(first.plan), cells)[0], counts)
    for name, mode in (("l1", "l1"), ("l2", "l2"), ("sorted", "central")):
        made = anonymized_histogram(Budget(epsilon), domain_size=cells, mode=mode, relation=relation)  # type: ignore[arg-type]
        yield name, distance(made.shape(tally, own), counts)


def summary(errors: dict[str, list[int]]) -> Iterator[tuple[str, dict[str, str]]]:
    """Mean and stddev by way."""
    for way, found in errors.items():
        yield way, {"l1": f"{np.mean(found):.0f}", "one_run_stddev": f"{np.std(found):.0f}"}


def measured(draw: Draw, n: int, cells: int, epsilon: float, relation: Relation, trials: int) -> dict[str, list[int]]:
    """The errors of all ways in all trials."""
    errors: dict[str, list[int]] = {}
    for trial in range(trials):
        counts = draw(n, np.random.default_rng([n, trial]))
        for way, error in modes(counts, cells, epsilon, relation, key(draw.__name__, n, epsilon, relation, trial)):
            errors.setdefault(way, []).append(error)
    return errors


def show(lines: list[dict[str, str]], line: dict[str, str]) -> None:
    """Prints a line of a table, and keeps it."""
    print("  ".join(f"{value:>16}" for value in line.values()), flush=True)
    lines.append(line)


def table(args: argparse.Namespace) -> None:
    """The l1 error by law and number of users, beside the references."""
    lines: list[dict[str, str]] = []
    for law, draw in LAWS.items():
        for n in args.users:
            for way, found in summary(measured(draw, n, n, 1.0, Relation.REPLACE, args.trials)):
                place = {"naive": 0, "Algorithm 1": 1, "l1": 1, "sorted": 2}.get(way)
                reference = REFERENCE.get((law, n), ())
                line = {"law": law, "users": str(n), "way": way, **found}
                line["over_root_n"] = f"{float(found['l1']) / np.sqrt(n):.2f}"
                line["reference"] = str(reference[place]) if reference and place is not None else ""
                line["reference_100"] = str(REFERENCE_100.get((law, n), "")) if way == "Algorithm 1" else ""
                show(lines, line)
    write_csv(lines, args.out / "anonymized_table.csv")
    figure, panels = plt.subplots(1, len(LAWS), figsize=(4.5 * len(LAWS), 4), sharey=True)
    for panel, law in zip(panels, LAWS, strict=True):
        for way in dict.fromkeys(line["way"] for line in lines):
            own = [line for line in lines if (line["law"], line["way"]) == (law, way)]
            panel.plot([int(line["users"]) for line in own], [float(line["l1"]) for line in own], "o-", label=way)
        panel.plot(args.users, 10 * np.sqrt(args.users), "k:", label="10 sqrt(n)")
        panel.set(title=law, xlabel="users", xscale="log", yscale="log")
    panels[0].set_ylabel("l1 error")
    save(figure, panels[0], args.out / "anonymized_table.png")


def epsilons(args: argparse.Namespace) -> None:
    """The l1 error by epsilon and relation, with 10,000 users."""
    lines: list[dict[str, str]] = []
    figure, panel = plt.subplots(figsize=(6, 4.5))
    for relation in Relation:
        for law in ("zipf", "uniform"):
            means: dict[str, list[float]] = {}
            for place, epsilon in enumerate(EPSILONS):
                found = measured(LAWS[law], 10_000, 10_000, epsilon, relation, args.trials)
                for way, numbers in summary(found):
                    reference = REFERENCE_EPSILON[relation.value, law][place] if way in ("Algorithm 1", "l1") else ""
                    line = {"relation": relation.value, "law": law, "epsilon": f"{epsilon:g}", "way": way, **numbers}
                    show(lines, line | {"reference": str(reference)})
                    means.setdefault(way, []).append(float(numbers["l1"]))
            for way, marker in (("Algorithm 1", "x:"), ("l1", "o-"), ("sorted", "s--")):
                panel.plot(EPSILONS, means[way], marker, label=f"{way}, {law}, {relation.value}")
    panel.set(xlabel="epsilon", ylabel="l1 error, 10,000 users", xscale="log", yscale="log")
    write_csv(lines, args.out / "anonymized_epsilon.csv")
    save(figure, panel, args.out / "anonymized_epsilon.png")


def hashing(args: argparse.Namespace) -> None:
    """Algorithm 2 with and without taking the collisions out, by number of buckets."""
    lines: list[dict[str, str]] = []
    n = 30_000
    for law, draw in HASHED.items():
        for times in (1, 2, 4):
            errors: dict[str, list[int]] = {"hashing alone": [], "no inversion": [], "Algorithm 2": []}
            # The product refuses fewer than two buckets a user, and takes no collisions out where most buckets are in use.
            hashed._LEAST_EMPTY = 0.25 if times == 1 else 0.5
            made = hashed_histogram(Budget(1), users=n * times // 4, buckets=n * times, relation=Relation.REPLACE)
            p = noise_parameter(made.plan)
            for trial in range(args.trials):
                rng = np.random.default_rng([n, times, trial])
                counts = draw(n, rng)
                counts = counts[counts > 0]
                buckets = np.bincount(rng.integers(0, made.buckets, len(counts)), weights=counts).astype(np.int64)
                cells = of_cells(tally_of(buckets), made.buckets)
                noisy = noisy_tally(cells, made.plan.scale, key(law, times, trial))
                plain, _ = bucket_shape(noisy, p, made.buckets, None)
                inverted, _ = bucket_shape(noisy, p, made.buckets, n)
                errors["hashing alone"].append(distance(tally_of(buckets), counts))
                errors["no inversion"].append(distance(plain, counts))
                errors["Algorithm 2"].append(distance(inverted, counts))
            for way, found in summary(errors):
                reference = REFERENCE_HASHED.get((law, times), ())
                place = {"no inversion": 0, "Algorithm 2": 1}.get(way)
                line = {"law": law, "buckets_per_user": str(times), "way": way, **found}
                line["reference"] = str(reference[place]) if reference and place is not None else ""
                show(lines, line)
    write_csv(lines, args.out / "anonymized_hashing.csv")
    figure, panel = plt.subplots(figsize=(8, 4.5))
    names = list(dict.fromkeys(f"{line['law']}, {line['buckets_per_user']}n" for line in lines))
    for number, way in enumerate(("hashing alone", "no inversion", "Algorithm 2")):
        own = [float(line["l1"]) for line in lines if line["way"] == way]
        panel.bar(np.arange(len(names)) + 0.28 * (number - 1), own, 0.28, label=way)
    panel.set(ylabel="l1 error, 30,000 users", yscale="log", xticks=np.arange(len(names)))
    panel.set_xticklabels(names, rotation=30, ha="right")
    save(figure, panel, args.out / "anonymized_hashing.png")


QUESTIONS: tuple[Question, ...] = (
    EntropyQuestion("plug-in"),
    EntropyQuestion("miller-madow"),
    EntropyQuestion(),
    DistinctQuestion(),
    CoverageQuestion(),
)
NAMES = ("entropy, plug-in", "entropy, Miller-Madow", "entropy, polynomial", "distinct items", "coverage of 2n")


def answers(counts_of: Callable[[int], Counts], cells: int, trials: int) -> Iterator[dict[str, str]]:
    """For each question and way: the mean answer, the root of its mean square error for the noise, and what it stated."""
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for trial in range(trials):
        tally = tally_of(counts_of(trial))
        samples = tally.total
        for way, mode in (("shape, l1", "l1"), ("shape, sorted", "central")):
            made = anonymized_histogram(Budget(1), domain_size=cells, mode=mode)  # type: ignore[arg-type]
            rows = made.shape(tally, key(way, cells, trial))
            spread = float(np.asarray(rows.column("error")).sum())
            for name, question in zip(NAMES, QUESTIONS, strict=True):
                answer = ShapeProperties(made, (question,)).of_rows(rows).to_pylist()[0]
                estimator = question.estimator(samples, spread)  # the same, where the guard depends on the noise
                truth = estimator.value(estimator.exact(tally))
                found.setdefault((name, way), []).append((truth, answer["value"], answer["noise_stddev"]))
        for name, question in zip(NAMES, QUESTIONS, strict=True):
            asked = central_property(Budget(1), question)
            answer = asked.of_tally(tally, key(name, cells, trial), "benchmark", "P").to_pylist()[0]
            estimator, _ = asked.plan(samples)
            truth = estimator.value(estimator.exact(tally))
            found.setdefault((name, "curator"), []).append((truth, answer["value"], answer["noise_stddev"]))
    for (name, way), values in found.items():
        truth, value, stated = np.array(values).T
        line = {"property": name, "way": way, "without_noise": f"{truth.mean():.5g}", "answer": f"{value.mean():.5g}"}
        line["noise_error"] = f"{np.sqrt(np.mean((value - truth) ** 2)):.3g}"
        yield line | {"stated": f"{stated.mean():.3g}"}


def properties(args: argparse.Namespace) -> None:
    """Entropy, distinct items and coverage at epsilon 1 under adding or removing a user."""
    lines: list[dict[str, str]] = []
    for law in ("zipf", "uniform"):
        for n in args.users:
            draw = LAWS[law]
            truth = ""
            if law == "uniform":
                truth = f"{np.log(n):.5g}"
            else:
                weights = 1 / np.arange(1, n + 1)
                weights /= weights.sum()
                truth = f"{-(weights * np.log(weights)).sum():.5g}"

            def counts_of(trial: int, draw: Draw = draw, n: int = n) -> Counts:
                return draw(n, np.random.default_rng([n, trial]))

            for line in answers(counts_of, n, args.trials):
                known = truth if line["property"].startswith("entropy") else ""
                show(lines, {"law": law, "users": str(n), **line, "of_the_law": known})
    write_csv(lines, args.out / "anonymized_properties.csv")
    figure, panels = plt.subplots(1, len(NAMES) - 2, figsize=(13, 4))
    for panel, name in zip(panels, NAMES[2:], strict=True):
        for law in ("zipf", "uniform"):
            for way, marker in (("shape, l1", "o-"), ("shape, sorted", "s--"), ("curator", "^:")):
                own = [x for x in lines if (x["law"], x["property"], x["way"]) == (law, name, way)]
                panel.plot(args.users, [float(x["noise_error"]) for x in own], marker, label=f"{way}, {law}")
        panel.set(title=name, xlabel="users", xscale="log", yscale="log")
    panels[0].set_ylabel("error for the noise")
    save(figure, panels[0], args.out / "anonymized_properties.png")


def files(args: argparse.Namespace) -> None:
    """One item of each user of the files, a uniform choice; a tenth more cells than distinct items."""
    lines: list[dict[str, str]] = []
    for entry in args.data:
        name, path = entry.split("=", 1)
        shard = as_shard(read_batch(Path(path)))
        one = limit_per_item(limit_items(shard, 1, key(name)), 1)
        counts = np.bincount(one.item)
        cells, users = int(1.1 * (counts > 0).sum()), len(one.users)
        for relation in Relation:
            errors: dict[str, list[int]] = {}
            for trial in range(args.trials):
                for way, error in modes(counts, cells, 1.0, relation, key(name, relation, trial)):
                    errors.setdefault(way, []).append(error)
            for way, found in summary(errors):
                over = f"{float(found['l1']) / np.sqrt(users):.2f}"
                show(lines, {"data": name, "relation": relation.value, "what": way, **found, "over_root_n": over})
        for line in answers(lambda _, counts=counts: counts, cells, args.trials):  # type: ignore[misc]
            what, numbers = f"{line['property']}, {line['way']}", (line["answer"], line["noise_error"])
            print("  ".join(f"{value:>16}" for value in (name, what, line["without_noise"], *numbers)), flush=True)
            lines.append(
                {
                    "data": name,
                    "relation": "add-remove",
                    "what": what,
                    "l1": "",
                    "one_run_stddev": "",
                    "over_root_n": "",
                }
                | {"answer": line["answer"], "without_noise": line["without_noise"], "noise_error": line["noise_error"]}
            )
    if lines:
        columns = list(dict.fromkeys(column for line in lines for column in line))
        write_csv(
            [{column: line.get(column, "") for column in columns} for line in lines], args.out / "anonymized_data.csv"
        )
        figure, panel = plt.subplots(figsize=(7, 4.5))
        for number, way in enumerate(("naive", "Algorithm 1", "l1", "sorted")):
            own = {f"{x['data']}, {x['relation']}": float(x["l1"]) for x in lines if x["what"] == way}
            panel.bar(np.arange(len(own)) + 0.2 * (number - 1.5), list(own.values()), 0.2, label=way)
        panel.set(ylabel="l1 error at epsilon 1", yscale="log", xticks=np.arange(len(own)))
        panel.set_xticklabels(list(own))
        save(figure, panel, args.out / "anonymized_data.png")


def save(figure: plt.Figure, legend: plt.Axes, path: Path) -> None:
    """Writes a plot."""
    legend.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


PARTS = {"table": table, "epsilon": epsilons, "hashing": hashing, "properties": properties, "data": files}


def main() -> None:
    """Measures the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--users", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for part in args.parts:
        print(f"\n{part}", flush=True)
        PARTS[part](args)


if __name__ == "__main__":
    main()
