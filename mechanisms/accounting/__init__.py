"""What a promise is and what it costs: relations, budgets, guarantees, and privacy losses that add up. Private."""
