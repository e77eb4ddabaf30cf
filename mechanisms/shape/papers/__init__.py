"""Methods of the papers for shapes that no default takes: the shuffle model and the pan-private model."""
