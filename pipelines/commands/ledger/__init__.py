"""`headcount ledger`: the account of a data set's releases. Private."""
