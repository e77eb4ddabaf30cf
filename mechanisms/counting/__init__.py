"""Counting what was bounded: evidence, sums by item, noise and threshold, released rows. Private."""
