"""What all transforms share: how rows come in, users are sharded, noise is added and rows go out. Private."""
