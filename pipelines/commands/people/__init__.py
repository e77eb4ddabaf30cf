"""Questions about people: `headcount funnel`, `activity` and `retention`. Private."""
