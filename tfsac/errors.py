"""The error type for problems that the user can fix."""


class TfsacError(ValueError):
    """A problem that the user can fix, such as a parameter out of range; the command line prints it as one line.

    Example:
        >>> raise TfsacError("discount must be in [0, 1), got 1.5")
    """
