"""Transforms of the papers' methods that no default takes: Plume, debiased totals, the shuffle and the pan-private model."""
