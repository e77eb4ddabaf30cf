"""One promise for a year against dividing it evenly: what each release gets, and how much less noise that is.

    python benchmarks/promise.py --epsilon 2 --delta 1e-6 --runs 52

Four releases in each run. Evenly, each gets epsilon / (runs * 4) and delta / (runs * 4), which adds up to the promise. Noise is
the standard deviation where the release states one before it sees data; of others, epsilon is told alone. The time is that of
the processor for computing all budgets.
"""

from __future__ import annotations

import argparse
import time

from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.promise import budgets, repeated
from headcount.mechanisms.accounting.totals import total_epsilon
from headcount.pipelines import parser
from headcount.pipelines.command import JobCommand, load

#: What a weekly report may have: with the noise that commands choose, and with Gaussian noise wherever there is a choice.
REPORTS = {
    "noise as chosen": {
        "pages": "histogram --item page",
        "countries": "histogram --of events --item country --domain {domain} --method one-stage --bound 10",
        "funnel": "funnel --time t --step page=/ --step page=/cart",
        "activity": "activity --bins 1,2,3,6",
    },
    "gaussian noise": {
        "pages": "histogram --item page --noise gaussian",
        "countries": "histogram --of events --item country --domain {domain} --method one-stage --bound 10 --noise gaussian",
        "funnel": "funnel --time t --step page=/ --step page=/cart --noise gaussian",
        "activity": "activity --bins 1,2,3,6 --noise gaussian",
    },
}
DOMAIN = "country=1..50"


def guarantee(line: str, epsilon: float, delta: float) -> Guarantee:
    """What a command promises at a budget."""
    name, *words = line.format(domain=DOMAIN).split()
    command = load(name)
    assert isinstance(command, JobCommand)
    words += ["--epsilon", repr(epsilon), "--delta", repr(delta), "--input", "x", "--user", "u", "--output", "o"]
    args, _ = parser.parse(command, words)
    command.check(args)
    return command.make_mechanism(args, int if "--domain" in words else str).guarantee()


def stddev(promise: Guarantee) -> float | None:
    """The standard deviation of its noise, if it is known before there is data."""
    found = [step.details["stddev"] for step in promise.mechanisms if "stddev" in step.details]
    return float(found[-1]) if found else None


def compare(lines: dict[str, str], epsilon: float, delta: float, runs: int, adaptive: bool) -> None:
    """Print what one report gets."""
    began = time.process_time()
    found = budgets(
        lambda name, *budget: [guarantee(lines[name], *budget)],
        dict.fromkeys(lines, 1.0),
        epsilon,
        delta,
        runs,
        adaptive,
    )
    seconds = time.process_time() - began
    costs = {name: guarantee(lines[name], budget.epsilon, budget.delta) for name, budget in found.items()}
    run, year = (total_epsilon(repeated(costs.values(), number), delta, adaptive) for number in (1, runs))
    print(f"  each run costs epsilon = {run:.4g}, all {runs} cost {year:.5g} at delta = {delta:g}; {seconds:.1f} s")
    parts = runs * len(lines)
    for name, budget in found.items():
        even = guarantee(lines[name], epsilon / parts, delta / parts)
        noise, before = stddev(costs[name]), stddev(even)
        more = f"{budget.epsilon * parts / epsilon:.1f} x"
        print(f"  {name:10} epsilon {budget.epsilon:.4g} in place of {epsilon / parts:.4g}, {more}", end="")
        if noise is not None and before is not None:
            print(f"; noise {noise:,.1f} in place of {before:,.1f}: {before / noise:.1f} x less", end="")
        print()


def main() -> None:
    """Print both reports, for totals that are planned and for adaptive ones."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--epsilon", type=float, default=2.0)
    flags.add_argument("--delta", type=float, default=1e-6)
    flags.add_argument("--runs", type=int, default=52)
    args = flags.parse_args()
    for name, lines in REPORTS.items():
        for adaptive in (False, True):
            print(f"{name}{', adaptive' if adaptive else ''}:")
            compare(lines, args.epsilon, args.delta, args.runs, adaptive)


if __name__ == "__main__":
    main()
