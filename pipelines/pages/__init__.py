"""Pages in HTML: one file each, without script or network, from what is released or public. Private."""
