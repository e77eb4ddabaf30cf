"""Commands that are no jobs: a log to try things with, a key, and a first look."""
