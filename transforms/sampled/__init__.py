"""Sample-and-threshold: histograms, heavy hitters and quantiles of a sample. Private; see `headcount.transforms`."""
