"""The two ways a job can be wrong: its parameters, or its data. Messages never hold a value from the data."""


class HeadcountError(Exception):
    """Anything that Headcount refuses, with a message of one line for the person who ran it."""


class ParameterError(HeadcountError, ValueError):
    """A parameter is wrong; the message echoes the value that was given and says what to do.

    A `parameter` is the name of it. Most messages begin with that, maybe after "a" where it is one of several: whoever has it
    by another name, as a flag or a key of a file, says so by `renamed`. Without it the message is of no single parameter.
    """

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = None if parameter is None else parameter.removeprefix("a ")

    def renamed(self, name: str) -> "ParameterError":
        """The same refusal, for one who knows the parameter by this name; the message begins with it."""
        message = str(self)
        if self.parameter is None or _begins(message, name):
            return self
        if _begins(message.removeprefix("a "), self.parameter):
            return ParameterError(name + message.removeprefix("a ").removeprefix(self.parameter), name)
        return ParameterError(f"{name}: {message}", name)


class InputError(HeadcountError, ValueError):
    """The data or a file is wrong; the message names file, column and row number, never a value."""


def _begins(message: str, name: str) -> bool:
    """Whether a message begins with this name, and not with a longer word."""
    return message.startswith(name) and not message[len(name) : len(name) + 1].isalnum()
