"""Commands on the file of a report."""
