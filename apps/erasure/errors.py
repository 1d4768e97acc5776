"""Why data of a person cannot be erased now. The message says what to do."""


class ErasureProblem(Exception):
    pass


class UsedByOthers(ErasureProblem):
    """Others use something that would be erased."""


class NotDone(ErasureProblem):
    """Something is still there; the next call continues."""
