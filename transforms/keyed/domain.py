"""What the caller of a transform says of items: their type, and a public domain, before the key columns are known."""

from __future__ import annotations

import dataclasses
from typing import Any

from headcount.mechanisms.batches.domain import Domain, PartDomain
from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.domains.given_domain import GivenDomain


@dataclasses.dataclass(frozen=True)
class GivenItems:
    """What the caller says of items: their type, if anything, and those of a public domain, if there is one.

    `domain` and `made` are for the factory of a mechanism. What the names of the domain's items are depends on the key columns
    of the collection, so `of` has them again; there are as many.
    """

    domain: Any = None
    item_type: type | None = None
    given: GivenDomain | None = None
    made: type = str

    def of(self, keys: Keys) -> Domain | PartDomain | None:
        """The domain for these keys; None where it is the one that is known already."""
        known = not self.given or (self.given.is_plain and keys == Keys.plain(self.made, keys.names[0]))
        return None if known or self.given is None else self.given.named(keys)


def given_items(item_type: type | None, domain: Any = None) -> GivenItems:
    """What the parameters `item_type` and `domain` of a transform say."""
    if domain is None or isinstance(domain, str | bytes):
        return GivenItems(domain, item_type, made=item_type or str)
    given = GivenDomain(domain)
    domain = given.known if given.is_plain else given.unnamed
    return GivenItems(domain, item_type, given, item_type or given.kind)
