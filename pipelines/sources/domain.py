"""A public domain in files: the keys to be counted, known beforehand."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from headcount.mechanisms.batches.domain import Domain
from headcount.mechanisms.columns.domain_files import DomainFile
from headcount.mechanisms.columns.key_column import parse_columns
from headcount.mechanisms.columns.keys import ITEM, Keys
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.storage import stores


def domain_of(args: argparse.Namespace) -> DomainFile | Domain | None:
    """The domain of a job, if it has one: in files, or named already, as a call in Python gives it."""
    if args.domain is None or isinstance(args.domain, Domain):
        return args.domain
    given = args.by if hasattr(args, "by") else args.item
    names = [column.name for column in parse_columns(given or ITEM)]
    return domain_file(args.domain, names, args.max_item_bytes)


def planned_domain(args: argparse.Namespace) -> Domain | None:
    """The same for what is planned: of files, only the size."""
    found = domain_of(args)
    return found.unnamed() if isinstance(found, DomainFile) else found


def domain_digest(args: argparse.Namespace, keys: Keys | None) -> dict[str, str]:
    """What a report states of the domain of a job on these keys, as parameters: a digest of the keys, in whatever file."""
    found = domain_of(args) if hasattr(args, "domain") else None
    if isinstance(found, DomainFile):
        found = None if keys is None else found.domain(keys)
    return {} if found is None else {"domain_digest": found.digest}


def domain_file(given: Sequence[str], names: Sequence[str], max_item_bytes: int) -> DomainFile:
    """The one file, or the COLUMN=FILE for each key column, that are given."""
    lists = {name: path for name, _, path in (each.partition("=") for each in given) if name in names and path}
    if not lists and len(given) == 1:
        return DomainFile(given[0], max_item_bytes, stores.read)
    if len(lists) < len(given) or len(lists) < len(names):
        wanted = " ".join(f"{name}=FILE" for name in names)
        raise ParameterError(f"domain must be one file, or {wanted}, got {' '.join(given)}", "domain")
    return DomainFile(lists, max_item_bytes, stores.read)
