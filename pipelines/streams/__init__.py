"""Streams: files that arrive, a release for each window of time, and each of them published once. Private."""
