"""The version that is installed: that of the tag that it was made of, or of the next one with .dev0."""

from importlib import metadata

__version__ = metadata.version("headcount")
