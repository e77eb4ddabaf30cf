"""A page from a template: one HTML file that needs nothing beside it.

Its style is in it, for light and dark screens and for paper; it has no script, and a policy forbids it any request. The same
values give the same bytes. Jinja2 is imported with the first page; text is escaped by it. What
it makes of a template is kept where Python keeps what it makes of this module, since that takes longer than to fill it in.
"""

from __future__ import annotations

import functools
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.pipelines.pages import texts

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).with_name("templates")
_KEPT = (
    "page-1-%s.cache"  # it knows the template that it was made of; other options of `_environment` need another number
)


def render(template: str, base: str = "page.html", **values: Any) -> bytes:
    """The bytes of a page from one of `templates/`, which extends `page.html`, or another `base`.

    Values are text, and escaped, but for charts. The filters are those of `texts`: `name` for what comes from data, `number`,
    `percent`, and `prose` for a line of a report.
    """
    text: str = _environment().get_template(template).render(values, base=base)
    return text.encode()


def render_fragment(template: str, **values: Any) -> str:
    """The same as a part of another page, such as a notebook's."""
    return render(template, "fragment.html", **values).decode()


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
    from jinja2.bccache import Bucket

    class Kept(FileSystemBytecodeCache):
        """Goes without where nothing can be kept, or shall be."""

        def dump_bytecode(self, bucket: Bucket) -> None:
            if not sys.dont_write_bytecode:
                with suppress(OSError):
                    super().dump_bytecode(bucket)

    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        bytecode_cache=Kept(str(Path(__file__).with_name("__pycache__")), _KEPT),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {each.__name__: each for each in (texts.name, texts.number, texts.percent, texts.prose)}
    return made
