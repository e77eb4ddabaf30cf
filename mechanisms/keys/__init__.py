"""Keys as people have them: one or several columns of several types, which are one canonical name inside. Private."""
