"""The error that says: this is the user's to mend."""


class TfsacError(ValueError):
    """Something that the user can mend, such as a parameter out of range; the command line prints it in one line.

    Example:
        >>> raise TfsacError("discount must be in [0, 1), got 1.5")
    """
