"""The two ways a job can be wrong: its parameters, or its data. Messages never hold a value from the data."""


class HeadcountError(Exception):
    """Anything that Headcount refuses, with a message of one line for the person who ran it."""


class ParameterError(HeadcountError, ValueError):
    """A parameter is wrong; the message echoes the value that was given and says what to do."""


class InputError(HeadcountError, ValueError):
    """The data or a file is wrong; the message names file, column and row number, never a value."""
