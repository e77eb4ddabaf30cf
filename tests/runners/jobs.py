"""The jobs that commands are tried with, on every runner. A subcommand that takes Beam's flags joins all of those tests by one
line here, and by one in WIRED."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headcount.pipelines.command import COMMANDS, JobCommand, load

_ONE_STAGE = "histogram --of events --method one-stage --epsilon 1"
_USERS = "histogram --method one-stage --epsilon 1"

# One line for each thing that a job can be asked to do: the subcommand and its own flags.
JOBS = {
    "estimates": "histogram --of events --epsilon 1 --delta 1e-6",
    "estimates of users": "histogram --epsilon 1 --delta 1e-6 --relation replace --output-files 2",
    "estimates, named first": "histogram --of events --epsilon 2 --delta 1e-6 --noise gaussian --max-per-item 3",
    "estimates named by four items of a user": "histogram --epsilon 2 --delta 1e-6 --max-items 4",
    "levels named by nine nodes of a user": "histogram --epsilon 2 --delta 1e-6 --levels country,item --max-items 9",
    "estimates of a public domain": "histogram --of events --epsilon 1 --domain {domain}",
    "named and not calibrated": "histogram --of events --epsilon 1 --delta 1e-6 --bound 4 --calibrate none",
    "items that nobody knew, Laplace": f"{_ONE_STAGE} --delta 1e-6 --bound 5 --noise laplace",
    "items that nobody knew, Gaussian": f"{_ONE_STAGE} --delta 1e-6 --bound 10 --noise gaussian",
    "at most two per item, three files": f"{_ONE_STAGE} --delta 1e-6 --bound 5 --max-per-item 2 --output-files 3",
    "a public domain, Laplace": f"{_ONE_STAGE} --bound 5 --domain {{domain}}",
    "a public domain, Gaussian": f"{_ONE_STAGE} --delta 1e-6 --bound 5 --noise gaussian --domain {{domain}}",
    "users of a public domain": f"{_ONE_STAGE} --bound 5 --max-per-item 1 --domain {{domain}}",
    "users of a public domain, shared noise": f"{_USERS} --delta 1e-6 --bound 5 --noise gaussian "
    "--domain {domain} --output-files 2",
    "estimates of users of a public domain": "histogram --epsilon 1 --delta 1e-6 --bound 8 --domain {domain}",
    "replaced users": f"{_ONE_STAGE} --delta 1e-6 --bound 5 --relation replace",
    "a chosen bound": f"{_ONE_STAGE} --delta 1e-6",
    "only good rows": f"{_ONE_STAGE} --delta 1e-6 --bound 5 --max-relative-error 0.5 --suppress-below 100 --label good",
    "a bound chosen for many items": f"{_ONE_STAGE} --delta 1e-6 --objective items --relation replace",
    "a chosen bound, public domain": f"{_ONE_STAGE} --delta 1e-6 --noise gaussian --domain {{domain}}",
    "events by country and day": "histogram --of events --epsilon 2 --delta 1e-6 --item country --item seen:day "
    "--time-zone Asia/Tokyo",
    "the largest items of each country": "histogram --epsilon 2 --delta 1e-6 --item country --item item --top 4 "
    "--per country --suppress-below 20 --output-files 3",
    "the largest days, one stage": f"{_ONE_STAGE} --delta 1e-6 --bound 5 --item seen:day --top 3",
    "users in levels": "histogram --epsilon 2 --delta 1e-6 --levels country,seen:month,item",
    "events in levels": "histogram --of events --epsilon 2 --delta 1e-6 --levels country,item --relation replace",
    "users at home in levels": "histogram --epsilon 1 --delta 1e-6 --levels country,number:1,2,4 --home --output-files 2",
    "events by country, all days": "histogram --of events --epsilon 2 --delta 1e-6 --item country --item seen:day "
    "--domain seen_day=2026-09-20..2026-09-29 --output-files 2",
    "users of the last 7 days, by country": "histogram --epsilon 2 --delta 1e-6 --item country --item seen:last7 "
    "--domain seen_last7=2026-09-22..2026-09-29 --time-zone Asia/Tokyo",
    "some rows, a public table": "histogram --of events --epsilon 2 --delta 1e-6 --item region --join {table} --on country "
    "--where (number>=0.25)and(region!=west)",
    "protected by day": "histogram --epsilon 1 --delta 1e-6 --item seen:day --protect user-day --time seen",
    "names of bins and hours": "partitions --epsilon 1 --delta 1e-6 --item number:1,2,4 --item seen:hour --output-files 2",
    "metrics of items": "aggregate --epsilon 2 --delta 1e-6 --users --events --sum number:0:20 --mean number:0:20",
    "metrics of a public domain": "aggregate --epsilon 1 --delta 1e-6 --domain {domain} --mean number:0:20 "
    "--variance number:0:20 --max-items 4 --max-per-item 3 --relation replace --output-files 2",
    "metrics by country, not calibrated": "aggregate --epsilon 2 --delta 1e-6 --item country --events --sum number:-9:9 "
    "--calibrate none",
    "metrics with quantiles": "aggregate --epsilon 2 --delta 1e-6 --events --mean number:0:20 --quantile 0.5,0.9:number:0:20",
    "shares of users": "aggregate --epsilon 2 --delta 1e-6 --users --share many=number>3 --share here=country=de",
    "ratios of sums": "aggregate --epsilon 2 --delta 1e-6 --events --ratio half=number:0:10/number:0:20",
    "metrics in chosen ranges, zCDP": "aggregate --rho 0.5 --delta 1e-6 --users --sum number:auto --mean number:-auto:auto",
    "metrics by country, all days": "aggregate --epsilon 2 --delta 1e-6 --item country --item seen:day --users --events "
    "--mean number:0:20 --domain seen_day=2026-09-20..2026-09-29",
    "metrics of the last 28 days": "aggregate --epsilon 2 --delta 1e-6 --item seen:last28 --users --sum number:0:20 "
    "--domain seen_last28=2026-09-22..2026-09-29 --output-files 2",
    "metrics in levels": "aggregate --epsilon 2 --delta 1e-6 --levels country,item --users --events --sum number:0:20 "
    "--mean number:0:20",
    "the bound alone": "choose-bound --epsilon 0.1 --for-epsilon 0.9 --for-delta 1e-6",
    "names of items, chosen": "partitions --epsilon 1 --delta 1e-6",
    "names of items, three rounds": "partitions --epsilon 2 --delta 1e-6 --strategy sips --max-items 5 --output-files 2",
    "names of items, by law": "partitions --epsilon 2 --delta 1e-6 --strategy law --max-items 5 --rounds 2 --output-files 2",
    "names of items, one each": "partitions --epsilon 1 --delta 1e-6 --strategy truncated-geometric --max-items 1",
    "named, then counted": "plume --rho 0.5 --delta 1e-6 --max-items 5 --max-counted-items 10",
    "named by sips, bounds chosen": "plume --rho 1 --delta 1e-6 --selection sips --max-relative-error 0.2",
    "sampled users": "sampled --epsilon 1 --delta 1e-6 --max-items 1",
    "sampled, items chosen": "sampled --epsilon 1 --delta 1e-6",
    "sampled, three items each": "sampled --epsilon 1 --delta 1e-6 --max-items 3 --relation replace --output-files 2",
    "heavy hitters": "heavy-hitters --epsilon 1 --delta 1e-6 --phi 0.02 --users 4000 --max-items 1",
    "heavy hitters, users counted": "heavy-hitters --epsilon 1 --delta 1e-6 --phi 0.02 --max-items 1",
    "heavy hitters, items chosen": "heavy-hitters --epsilon 1 --delta 1e-6 --phi 0.02 --output-files 2",
    "quantiles": "quantiles --epsilon 2 --delta 1e-4 --value number --lo 0 --hi 20 --quantile 0.5 --quantile 0.9 --levels 6",
    "one quantile, searched for": "quantiles --epsilon 2 --delta 1e-4 --value number --lo 0 --hi 20 --quantile 0.5 "
    "--method search --rounds 6 --relation replace",
    "ranges": "quantiles --epsilon 2 --delta 1e-4 --value number --lo 0 --hi 20 --range 0:4 --range 4:20 --levels 4",
    "users in all": "total --epsilon 1 --of users",
    "events in all, replaced users": "total --epsilon 1 --of events --relation replace --output-files 2",
    "users and events of given items": "total --epsilon 1 --domain {domain}",
    "totals of given items, debiased": "total --epsilon 1 --method debiased --max-per-item 2 --domain {domain}",
    "totals, Gaussian": "total --epsilon 1 --delta 1e-6 --method debiased --max-per-item 2 --noise gaussian "
    "--relation replace --users 4000 --domain {domain}",
    "a funnel": "funnel --epsilon 1 --time seen --step number<2 --step country=de --step number>4 --within 2d",
    "a funnel by country": "funnel --epsilon 2 --delta 1e-6 --time seen --step country!=at --step number>3 --by country "
    "--output-files 2",
    "a funnel by a public list": "funnel --epsilon 1 --delta 1e-6 --noise gaussian --time seen --step number>1 --step number>2 "
    "--by item --domain {domain} --relation replace",
    "who is active": "actives --epsilon 1 --delta 1e-6 --time seen --from 2026-09-22 --to 2026-09-26",
    "who is active, by country": "actives --epsilon 1 --delta 1e-6 --time seen --from 2026-09-20 --to 2026-09-24 --by country "
    "--relation replace --output-files 2",
    "how often": "activity --epsilon 1 --bins 1,2,4,8 --output-files 2",
    "how often, by country": "activity --epsilon 1 --delta 1e-6 --by country",
    "who comes back": "retention --epsilon 1 --delta 1e-6 --time seen --every day --from 2026-09-21 --to 2026-09-27",
    "who comes back, by country": "retention --epsilon 1 --delta 1e-6 --time seen --from 2026-09-21 --to 2026-10-20 "
    "--by country --relation replace --time-zone Asia/Tokyo",
    "the largest counts": "count-release --epsilon 5 --delta 1e-4",
    "the largest counts, noise reduced": "count-release --epsilon 5 --delta 1e-4 --max-per-item 2 --noise-reduction --k-bar 20",
    "the shape, sorted": "shape --epsilon 1 --domain-size 500 --output-files 2",
    "the shape, hashed": "shape --epsilon 2 --buckets 20000 --mode l2 --max-items 3 --coverage 9000 --relation replace",
    "the shape, Algorithm 1": "shape --epsilon 1 --domain-size 500 --estimate algorithm-1",
    "distinct items": "shape --epsilon 1 --property distinct-items",
    "a property": "shape --epsilon 1 --property support-coverage --coverage 5000",
    "the top": "top --k 5 --epsilon 2 --delta 1e-4 --relation replace --output-files 2",
    "the top, named first": "top --k 12 --epsilon 2 --delta 1e-4 --output-files 2",
    "the top of all pairs": "top --k 5 --epsilon 2 --delta 1e-4 --item country --item number:1,2,4 --overall",
    "a distribution, samples chosen": "distribution --epsilon 1 --delta 1e-6 --domain {domain}",
    "a distribution of users who differ": "distribution --epsilon 1 --samples-per-user 3 --domain {domain}",
    "a distribution, dense": "distribution --epsilon 1 --samples-per-user 5 --method dense --domain {domain}",
    "a distribution, sparse": "distribution --epsilon 1 --delta 1e-6 --samples-per-user 8 --method sparse --users 500 "
    "--output-files 2 --domain {domain}",
    "a distribution by the paper's selection": "distribution --epsilon 2 --delta 1e-6 --samples-per-user 5 --method dense "
    "--hypothesis phs --domain {domain}",
}

# Jobs of what has its noise already, and so draw none and need no key.
STORED = {
    "the shape of messages": "shape --model shuffle --epsilon 2 --delta 1e-2 --relation replace --users 300 --buckets 1200 "
    "--salt s --mode l2 --input {messages}",
    "the shape of counters": "shape --model pan-private --epsilon 1 --buckets 1200 --salt s --samples 300 --input {counters}",
}

# All jobs are run once, by tests/golden. What runs jobs again (on another runner, by verify, as a job of Dataflow) takes these:
# their graphs have every kind of step that a graph of any job has, and every subcommand is among them.
WIRED = [
    "estimates",
    "estimates of a public domain",
    "events in levels",
    "users at home in levels",
    "events by country, all days",
    "users of the last 7 days, by country",
    "the largest items of each country",
    "some rows, a public table",
    "names of bins and hours",
    "metrics by country, all days",
    "metrics in chosen ranges, zCDP",
    "metrics in levels",
    "the bound alone",
    "named, then counted",
    "sampled users",
    "heavy hitters, items chosen",
    "quantiles",
    "one quantile, searched for",
    "events in all, replaced users",
    "totals of given items, debiased",
    "a funnel by country",
    "how often",
    "who is active",
    "who comes back",
    "the largest counts",
    "the shape, sorted",
    "distinct items",
    "a property",
    "the top, named first",
    "a distribution, samples chosen",
    "a distribution, sparse",
]

# Those of every change: together they run every module of transforms whose steps any job has (tests/golden/test_wired.py).
DOZEN = [
    "metrics by country, all days",
    "sampled users",
    "events in levels",
    "named, then counted",
    "a funnel by country",
    "a property",
    "a distribution, samples chosen",
    "the bound alone",
    "quantiles",
    "events in all, replaced users",
    "totals of given items, debiased",
    "the shape of messages",
]


def tried_first(some: list[str]) -> list[object]:
    """The jobs that runners are tried with, as the parameters of a test: all but some wait for --everything."""
    return [pytest.param(job, marks=[] if job in some else pytest.mark.everything) for job in [*WIRED, *STORED]]


def words_of(job: str, data: Path) -> list[str]:
    """The subcommand and the flags of a job, with the files of this folder."""
    return JOBS[job].format(domain=data / "domain.txt", table=data / "regions.csv").split()


def write_regions(data: Path) -> None:
    """The public table of those jobs that have one: a country has no region, and one is in no event."""
    (data / "regions.csv").write_text("country,region,members\nde,middle,3\nat,,2\nfr,west,9\nch,high,1\n")


def wired_first() -> list[object]:
    """All jobs as the parameters of a test, which is slow for those that are wired like others."""
    return [pytest.param(job, marks=[] if job in WIRED else pytest.mark.slow("jobs")) for job in JOBS]


def beside(item: np.ndarray) -> dict[str, pa.Array]:
    """The other columns of events with these items: numbers, countries and times."""
    seen = pa.array(1_790_000_000 + 3_001 * item.astype(np.int64), pa.timestamp("s"))
    return {
        "number": pa.array(item / 8),
        "country": pa.array(["de", "at", "ch"]).take(pa.array(item % 3)),
        "seen": seen,
    }


def domain_of(own: list[str]) -> list[str]:
    """The flags of the public domain of a job, by its own flags."""
    return own[own.index("--domain") : own.index("--domain") + 2] if "--domain" in own else []


def column(command: str, own: list[str]) -> list[str]:
    """The flag of the items' column, unless a job's own flags name the one that it reads, or it reads none."""
    none = command in ("funnel", "retention", "activity", "actives") or (command == "total" and "--domain" not in own)
    return [] if none or {"--item", "--value", "--levels"} & {*own} else ["--item", "item"]


def without_a_job() -> set[str]:
    """The subcommands that run a job and have none among WIRED; there must be none."""
    jobs = {name for name in COMMANDS if isinstance(load(name), JobCommand)}
    return jobs - {JOBS[job].split()[0] for job in WIRED}
