"""Methods of the papers for histograms that no default takes: totals with the bias of the cap taken out (Algorithm 5)."""
