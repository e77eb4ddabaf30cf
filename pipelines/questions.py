"""The questions that people come with, each with its one command; and the commands, grouped by what they are for: on one page
what people use daily, on another the other methods of the papers.

`headcount --help`, README.md and the first page of the site show the same questions: tests hold them together.
"""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    """A question in the reader's words, the command that answers it (without input, promise and output), and its page."""

    asked: str
    command: str
    page: str


QUESTIONS = (
    Question("How many users per page?", "histogram --item page", "histogram.md"),
    Question(
        "How many events per country and day?",
        "histogram --of events --max-per-item 24 --item country --item viewed_at:day",
        "keys.md",
    ),
    Question("How many users per page, on phones alone?", "histogram --item page --where device=phone", "where.md"),
    Question(
        "How many users per country, and of each per page, in numbers that agree?",
        "histogram --levels country,page",
        "levels.md",
    ),
    Question(
        "How much is spent per country, and on average?",
        "aggregate --item country --sum price:0:100 --mean price:0:100",
        "aggregate.md",
    ),
    Question(
        "Which share of each country's users has bought?",
        "aggregate --item country --share bought=event=buy",
        "aggregate.md#shares-of-users",
    ),
    Question("How many users and events in all?", "total", "total.md"),
    Question(
        "How many users come from the first page to the paid order?",
        "funnel --time viewed_at --step page=/ --step page=/cart --step 'price > 0'",
        "people.md#how-far-users-come",
    ),
    Question(
        "Who comes back in later weeks?", "retention --time viewed_at --every week ...", "people.md#who-comes-back"
    ),
    Question(
        "How many users are active, by day, week and month?", "actives --time viewed_at ...", "people.md#who-is-active"
    ),
    Question(
        "How many users has each page in the 7 days up to each day?",
        "histogram --item page --item viewed_at:last7 ...",
        "people.md#the-last-7-days-of-each-page",
    ),
    Question("How many users did it how often?", "activity --bins 1,2,3,6,11,51", "people.md#how-often"),
    Question("How many distinct searches?", "shape --item query --property distinct-items", "shape.md"),
    Question("Which searches may be shown?", "partitions --item query", "partitions.md"),
    Question("Which ten pages have the most users?", "top --item page --k 10", "top.md"),
    Question(
        "Which five searches have the most users in each country?",
        "histogram --item country --item query --top 5 --per country",
        "top.md#the-largest-of-each-group",
    ),
    Question("Which pages do 5 % of all users have?", "heavy-hitters --item page --phi 0.05", "sampled.md"),
    Question(
        "How long is the median session?",
        "quantiles --value seconds --lo 0 --hi 3600 --quantile 0.5",
        "sampled.md#quantiles-and-ranges-of-values",
    ),
    Question("How likely is each kind of device?", "distribution --item device --domain FILE", "distribution.md"),
    Question(
        "How many users per day, each day for itself?",
        "histogram --protect user-day ...",
        "privacy.md#a-user-or-a-user-in-one-day",
    ),
    Question(
        "How many users per page each day, as files arrive?",
        "stream histogram --item page --time viewed_at --every day ...",
        "streams.md",
    ),
    Question("What will an epsilon give me?", "forecast --users 1e6 ...", "forecast.md"),
    Question("Which method is best for data like mine?", "rehearse --public-data FILE", "rehearse.md"),
    Question("What will a year of reports cost?", "plan FILE", "report-file.md#one-promise-for-a-year"),
    Question("How do I make a whole report every week?", "run FILE --period 2026-W46", "report-file.md"),
    Question("What changed since last week?", "diff LAST-OUT THIS-OUT", "over-time.md"),
    Question("How much may I still release this year?", "ledger total NAME", "ledger.md"),
    Question("What do I tell people outside?", "statement OUT", "statement.md"),
    Question("Does it keep what it promises?", "audit ...", "audit.md"),
)

# What people call commands that have another name here.
OTHER_WORDS = {
    "count": (
        "histogram (users or events of each item)",
        "total (how many users and events in all)",
    ),
    "compare": ("rehearse (methods on your data)", "diff (two releases)"),
}

GROUPS = {
    "counts, sums and means of each item": "histogram aggregate total",
    "people, each as a whole": "funnel retention activity actives",
    "names alone": "partitions top heavy-hitters",
    "one column as a whole": "quantiles distribution shape",
    "before a release": "forecast rehearse choose-bound key",
    "a whole report": "plan run",
    "files that arrive": "stream",
    "after a release": "show series diff verify statement ledger audit",
    "to try, and for pipelines of your own": "demo generate explain-yaml completion",
}

# The second page, `headcount --help papers`: what no default takes, and a reader of the papers looks for.
PAPER_GROUPS = {
    "other methods for counts of users": "count-release plume sampled",
    "other models of trust, for shape --model shuffle and pan-private": "randomize counters",
}
PAPER_FLAGS = {
    "choose-bound --bound-method NAME": "The paper's choices of a bound: dp-gd, output-perturbation, m-quantile; em and gem "
    "without --domain.",
    "histogram --method one-stage": "Noisy counts of what a bound leaves, with the same --bound-method NAME.",
    "total --method debiased": "Totals of given items, with the bias of the cap taken out.",
    "partitions --strategy NAME": "Other selections of items: every strategy but auto and law.",
    "distribution --hypothesis phs": "Private hypothesis selection as the paper has it, in place of ks.",
}
