"""What releases say of their privacy losses, and what many of them come to together."""
