"""Where results go: files or a table, committed whole or not at all. Private."""
