"""Commands that look before anything is spent. Private."""
