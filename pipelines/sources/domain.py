"""A public domain in files and ranges: the keys to be counted, or some of their columns, known beforehand."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from headcount.mechanisms.batches.domain import Domain, PartDomain
from headcount.mechanisms.columns.key_column import parse_columns
from headcount.mechanisms.columns.keys import ITEM, Keys
from headcount.mechanisms.domains.domain_files import DomainFile
from headcount.mechanisms.domains.key_ranges import parse_range
from headcount.mechanisms.domains.partly_public import PartlyPublic
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.storage import stores


def domain_of(args: argparse.Namespace) -> DomainFile | Domain | PartDomain | None:
    """The domain of a job, if it has one: in files, or named already, as a call in Python gives it."""
    if args.domain is None or isinstance(args.domain, Domain | PartDomain):
        return args.domain
    given = args.by if hasattr(args, "by") else args.item
    names = [column.name for column in parse_columns(given or ITEM)]
    return domain_file(args.domain, names, args.max_item_bytes)


def planned_domain(args: argparse.Namespace) -> Domain | PartDomain | None:
    """The same for what is planned: of files, only the size."""
    found = domain_of(args)
    return found.unnamed() if isinstance(found, DomainFile) else found


def domain_digest(args: argparse.Namespace, keys: Keys | None) -> dict[str, str]:
    """What a report states of the domain of a job on these keys, as parameters: a digest of the keys, in whatever file."""
    found = domain_of(args) if hasattr(args, "domain") else None
    if isinstance(found, DomainFile):
        found = None if keys is None else found.domain(keys)
    return {"domain_digest": found.digest} if isinstance(found, Domain | PartlyPublic) else {}


def is_named(args: argparse.Namespace) -> bool:
    """Whether items come from the data: without a domain, or with one of some key columns alone."""
    return public_columns(args) != {column.name for column in parse_columns(args.item or ITEM)}


def public_columns(args: argparse.Namespace) -> set[str]:
    """The key columns that are public by the flags, by their names in the output: all, where there is a list of whole keys."""
    names = {column.name for column in parse_columns(args.item or ITEM)}
    given = getattr(args, "domain", None)
    if isinstance(given, list) and len(names) > 1:  # of texts on the command line, and of tuples in Python
        given = {each.partition("=")[0]: each for each in given if isinstance(each, str) and "=" in each}
    some = isinstance(given, Mapping) and bool(given) and {*given} < names
    return set() if given is None else {*given} if some else names


def stated(domain: Domain | PartDomain | None) -> dict[str, Any]:
    """What the report of a mechanism with this domain says of it: whether all keys are public, or which columns are."""
    columns = list(domain.public) if isinstance(domain, PartDomain) else None
    return {"public_domain": isinstance(domain, Domain), "public_columns": columns}


def partly_note(domain: Domain | PartDomain | None) -> str | None:
    """What a reader must know of rows whose keys are partly public; else nothing."""
    if not isinstance(domain, PartDomain):
        return None
    return (
        f"public: {', '.join(domain.public)}; the other columns were named from the data, each combination once, and each has "
        "rows for all of it, zeros included"
    )


def domain_file(given: Sequence[str], names: Sequence[str], max_item_bytes: int) -> DomainFile:
    """The one file, or the COLUMN=FILE or COLUMN=FIRST..LAST for some key columns or all, that are given."""
    lists = {name: path for name, _, path in (each.partition("=") for each in given) if name in names and path}
    if not lists and len(given) == 1 and parse_range(given[0].rpartition("=")[2]) is None:
        return DomainFile(given[0], max_item_bytes, stores.read)
    if len(lists) < len(given):
        wanted = " ".join(f"{name}=FILE" for name in names)
        raise ParameterError(
            f"domain must be one file, or {wanted} (or COLUMN=FIRST..LAST), got {' '.join(given)}", "domain"
        )
    return DomainFile(lists, max_item_bytes, stores.read, tuple(names))
