"""Columns of tables as people have them: users, keys of one or several columns of any type, times and values. Private."""
