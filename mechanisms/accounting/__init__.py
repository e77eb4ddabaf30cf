"""What a promise is and what it costs: relations, budgets, guarantees, and noise calibrated for them. Private."""
