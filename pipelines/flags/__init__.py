"""Flags that commands share, how their values are read, and what is made of them. Private; nothing here reads data."""
