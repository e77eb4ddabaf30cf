"""The jobs that every runner is tried with. A subcommand that takes Beam's flags joins all of those tests by one line."""

from __future__ import annotations

from headcount.pipelines.main import COMMANDS, load

_ITEMS = " ".join(f"--of i{number}" for number in range(1, 31))

# One line for each thing that a job can be asked to do: the subcommand and its own flags.
JOBS = {
    "items that nobody knew, Laplace": "histogram --epsilon 1 --delta 1e-6 --bound 5 --noise laplace",
    "items that nobody knew, Gaussian": "histogram --epsilon 1 --delta 1e-6 --bound 10 --noise gaussian",
    "at most two per item, three files": "histogram --epsilon 1 --delta 1e-6 --bound 5 --max-per-item 2 --output-files 3",
    "a public domain, Laplace": "histogram --epsilon 1 --bound 5 --domain {domain}",
    "a public domain, Gaussian": "histogram --epsilon 1 --delta 1e-6 --bound 5 --noise gaussian --domain {domain}",
    "replaced users": "histogram --epsilon 1 --delta 1e-6 --bound 5 --relation replace",
    "a chosen bound": "histogram --epsilon 1 --delta 1e-6",
    "a bound chosen for many items": "histogram --epsilon 1 --delta 1e-6 --objective items --relation replace",
    "a chosen bound, public domain": "histogram --epsilon 1 --delta 1e-6 --noise gaussian --domain {domain}",
    "the bound alone": "bound --epsilon 0.1 --for-epsilon 0.9 --for-delta 1e-6",
    "totals of given items": f"count --epsilon 1 --cap 2 {_ITEMS}",
    "totals, Gaussian": f"count --epsilon 1 --delta 1e-6 --cap 2 --noise gaussian --relation replace --users 4000 {_ITEMS}",
}


def without_a_job() -> set[str]:
    """The subcommands that take Beam's flags and have no line in JOBS; there must be none."""
    return {name for name in COMMANDS if load(name).takes_beam_flags} - {job.split()[0] for job in JOBS.values()}
