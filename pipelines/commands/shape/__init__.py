"""The subcommands of the shape family: the shape itself in all models, and what makes messages and counters. Private."""
