"""The subcommands of `headcount`, one module each with its flags. Private."""
