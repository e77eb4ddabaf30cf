"""Where events come from: files, tables, public domains, synthetic logs. Private."""
