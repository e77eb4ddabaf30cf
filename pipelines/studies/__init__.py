"""Looking before spending: methods run in this process on data that is public or made up, scored against the truth. Private.

Nothing here is private, and nothing here may see data that must be: a score beside the truth tells of single users. Releases
are those of the mechanisms themselves, whole; nothing is simulated.
"""
