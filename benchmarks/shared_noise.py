"""Noise of which one draw is shared, beside independent noise; and what intervals of shown items hold near a threshold.

python benchmarks/shared_noise.py --releases 20
"""

from __future__ import annotations

import argparse
import dataclasses
import math

import numpy as np
import pyarrow as pa

from headcount.mechanisms import Budget, Release, contribution_batch, ephemeral_key
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.intervals import DEVIATIONS
from headcount.mechanisms.calibration.noise import calibrate_public_domain
from headcount.mechanisms.histogram.factory import estimates
from headcount.mechanisms.histogram.fixed import unbounded_histogram

BUDGET = Budget(1.0, 1e-6)
ITEMS = (10, 100, 1000)
PARTS = (1.0, 0.5, 0.1)  # of the domain that a user has at most
USERS, SHOWN = 3000, 4000
PLACES = (-3, -1, 0, 2, 8)  # in scales of the noise from the threshold


def saved() -> None:
    """The noise of counts of users, by the items of the domain and the part of them that one user may have."""
    print(f"{'items':>8}{'of a user':>12}{'alone':>10}{'shared':>10}{'saved':>8}{'a difference':>14}{'sum of all':>12}")
    for items in ITEMS:
        for part in PARTS:
            most = math.ceil(items * part)
            bound = Bound(l0=most, linf=1)
            alone, plan = (calibrate_public_domain(BUDGET, bound, "add-remove", "gaussian", d) for d in (None, items))
            differ = plan.difference_stddev / alone.difference_stddev
            summed = plan.sum_stddev(items) / alone.sum_stddev(items)
            line = (
                f"{items:>8,}{most:>12,}{alone.stddev:>10.2f}{plan.stddev:>10.2f}{1 - plan.stddev / alone.stddev:>8.1%}"
            )
            print(f"{line}{differ:>14.2f}{summed:>12.2f}")


def estimated(items: int, each: int, releases: int) -> list[float]:
    """The errors of estimates of the users of each item, everything chosen, without and with a shared draw: of half of the
    releases the root of the mean square is smaller. Users have `each` of the items in the mean, some more often than others."""
    random = np.random.default_rng(3)
    order = np.argsort(random.exponential(size=(USERS, items)) * np.sqrt(np.arange(1, items + 1)), axis=1)
    number = np.clip(random.poisson(each, USERS), 1, items)
    user, place = np.nonzero(np.arange(items) < number[:, None])
    item = order[user, place]
    true = np.bincount(item, minlength=items)
    batch = contribution_batch(pa.array(user), pa.array(item))
    made = estimates(BUDGET, domain=range(items), of="users", noise="gaussian", item_type=int)
    alone = dataclasses.replace(made, stages=dataclasses.replace(made.stages, items=None))
    found = []
    for mechanism in (alone, made):
        counts = [mechanism.run([batch], Release(ephemeral_key(), f"r{k}")).column("count") for k in range(releases)]
        found.append(float(np.median(np.sqrt(np.mean(np.square(np.array(counts) - true), axis=1)))))
    return found


def held(noise: str) -> None:
    """The share of intervals that hold the truth, of items that are shown: plain ones, and those that are released."""
    made = unbounded_histogram(BUDGET, bound=1, noise=noise, item_type=int)
    threshold, scale = (float(value) / 2**made.plan.grid for value in (made.plan.threshold or 0, made.plan.scale))
    for place in PLACES:
        true = round(threshold + place * scale)
        item = np.repeat(np.arange(SHOWN), true)
        batch = contribution_batch(pa.array(np.arange(len(item))), pa.array(item))
        rows = made.run([batch], Release(ephemeral_key(), "r"))
        count, low, high = (np.asarray(rows.column(name)) for name in ("bounded_count", "low", "high"))
        plain = np.abs(count - true) <= DEVIATIONS * made.plan.stddev + 0.5
        known = (low <= true) & (true <= high)
        print(f"{noise:<10}{threshold:>11.4g}{true:>7}{len(count):>7}{plain.mean():>8.3f}{known.mean():>10.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=20, help="of which errors of estimates are taken")
    releases = parser.parse_args().releases
    saved()
    print(f"\n{'items':>8}{'of a user':>12}{'alone':>10}{'shared':>10}")
    for items, each in ((40, 15), (100, 40), (300, 150)):
        alone, shared = estimated(items, each, releases)
        print(f"{items:>8,}{each:>12,}{alone:>10.1f}{shared:>10.1f}", flush=True)
    print(f"\n{'noise':<10}{'threshold':>11}{'true':>7}{'shown':>7}{'plain':>8}{'released':>10}")
    for noise in ("laplace", "gaussian"):
        held(noise)


if __name__ == "__main__":
    main()
