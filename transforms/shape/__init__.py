"""Shapes and their properties, in the central, the shuffle and the pan-private model. Private; see `headcount.transforms`."""
