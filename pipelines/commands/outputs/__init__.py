"""The subcommands that look at a complete output again. Private."""
