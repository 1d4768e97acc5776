"""Why there is no backup, or no way back from one. The message says what to do."""


class BackupProblem(Exception):
    pass


class Busy(BackupProblem):
    """Another process writes a backup into the same place."""


class ForeignPlace(BackupProblem):
    """The place of the backups has files of other programs."""


class NotABackup(BackupProblem):
    """There is no backup, or one of its files is missing or altered."""


class KeyProblem(BackupProblem):
    """The key of encrypted backups is missing, unreadable or another one."""


class DatabaseProblem(BackupProblem):
    """The database cannot be copied or restored."""
