"""A report in one file: its data, its key and ledger, its promise, and its releases by name. Private; `file` reads it, `jobs`
makes of each release the very command line of its command, `schema` says the same to editors."""
