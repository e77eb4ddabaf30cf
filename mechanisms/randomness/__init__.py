"""Where random bits come from: keys, lanes that a repeated step draws again, and exact samplers on them. Private."""
