"""Files and tables as the rest sees them, wherever they lie. Private."""
