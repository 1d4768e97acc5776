"""What to do about a storage that cannot be used, by what went wrong."""

import errno
from enum import StrEnum

from apps.checkpoints.objects import NOT_FOUND
from apps.checkpoints.trying import SERVER_ERROR, OtherKey, passes, status_of
from trainops.runtime.errors import StorageAway

UNAUTHORIZED, FORBIDDEN = 401, 403
# Codes of S3 and Azure, and classes of boto3, Google's and Azure's libraries.
OF_CREDENTIALS = frozenset({
    "AuthFailure", "AuthenticationFailed", "ClientAuthenticationError", "CredentialRetrievalError",
    "DefaultCredentialsError", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken",
    "NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "RefreshError",
    "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired", "TokenRetrievalError",
})  # fmt: skip


class Defect(StrEnum):
    """Why a storage cannot be used."""

    FOREIGN = "foreign or not mounted"
    CREDENTIALS = "credentials"
    BUCKET_MISSING = "bucket missing"
    DENIED = "no permission"
    OTHER_KEY = "other key"
    UNREACHABLE = "unreachable"
    MISSING = "path missing"
    READ_ONLY = "read-only"
    FULL = "full"
    NOT_PERMITTED = "path not permitted"
    DISCONNECTED = "disconnected"
    UNKNOWN = "unknown"


OF_CONFIGURATION = frozenset({
    Defect.CREDENTIALS, Defect.BUCKET_MISSING, Defect.DENIED, Defect.OTHER_KEY,
})  # fmt: skip
ERRNOS = {
    errno.ENOENT: Defect.MISSING,
    errno.ENOTDIR: Defect.MISSING,
    errno.EROFS: Defect.READ_ONLY,
    errno.ENOSPC: Defect.FULL,
    errno.EDQUOT: Defect.FULL,
    errno.EACCES: Defect.NOT_PERMITTED,
    errno.EPERM: Defect.NOT_PERMITTED,
    errno.EIO: Defect.DISCONNECTED,
    errno.ESTALE: Defect.DISCONNECTED,
    errno.ENOTCONN: Defect.DISCONNECTED,
    errno.EHOSTDOWN: Defect.DISCONNECTED,
    errno.ETIMEDOUT: Defect.DISCONNECTED,
}
REMEDIES = {
    Defect.FOREIGN: "Make the storage that the other machines use available here: mount it, or "
    "correct TRAINOPS_CHECKPOINT_STORAGE or TRAINOPS_DATA_DIR. For the storage of a lost database: "
    "up --take-over-storage.",
    Defect.CREDENTIALS: "Set valid credentials of the bucket in the environment of all processes "
    "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, or "
    "AZURE_STORAGE_KEY), and see that the clock of this machine is right.",
    Defect.BUCKET_MISSING: "Create the bucket, or correct its name, region_name or endpoint_url in "
    "TRAINOPS_CHECKPOINT_STORAGE: trainops creates none.",
    Defect.DENIED: "Allow these credentials to list the bucket, and to read, write and delete its "
    "objects.",
    Defect.OTHER_KEY: "Have TRAINOPS_CHECKPOINT_KEY_FILE name a file with this key, the same for "
    "all processes; a former key stays in a line below the first.",
    Defect.UNREACHABLE: "See that this machine reaches the endpoint of the bucket (endpoint_url, "
    "name resolution, proxy, firewall, certificate), and that its server runs.",
    Defect.MISSING: "Create or mount the directory, or correct TRAINOPS_CHECKPOINT_STORAGE or "
    "TRAINOPS_DATA_DIR.",
    Defect.READ_ONLY: "Mount the file system for writing: mount -o remount,rw. After an error of "
    "the disk, check it first.",
    Defect.FULL: "Add space, raise the quota of this user, or delete what is not needed "
    "(trainops checkpoints gc).",
    Defect.NOT_PERMITTED: "Make the directory writable for the user that runs trainops, or run as "
    "the user that owns it.",
    Defect.DISCONNECTED: "The file system does not respond: check its server and the network, and "
    "mount it again.",
    Defect.UNKNOWN: "Correct TRAINOPS_CHECKPOINT_STORAGE or TRAINOPS_DATA_DIR, or see the log of "
    "the storage.",
}


def cause_of(error: OSError) -> Defect:
    """Return why the storage failed; what the library of a bucket raised is its `__cause__`."""
    if isinstance(error, StorageAway):
        return Defect.FOREIGN
    if isinstance(error, OtherKey):
        return Defect.OTHER_KEY
    if error.__cause__ is not None:
        return _of_library(error.__cause__)
    return ERRNOS.get(error.errno or 0, Defect.UNKNOWN)


def remedy(error: OSError) -> str:
    return REMEDIES[cause_of(error)]


def _of_library(error: BaseException) -> Defect:
    status = status_of(error)
    if status == UNAUTHORIZED or OF_CREDENTIALS & {_code(error), *_classes(error)}:
        return Defect.CREDENTIALS
    if status == FORBIDDEN:
        return Defect.DENIED
    if status == NOT_FOUND:
        return Defect.BUCKET_MISSING
    if passes(error) or (status is not None and status >= SERVER_ERROR):
        return Defect.UNREACHABLE
    if isinstance(error, OSError):
        return cause_of(error)
    return Defect.UNKNOWN


def _code(error: BaseException) -> str:
    """Return the code that S3 or Azure gave; empty where there is none."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code", ""))
    return str(getattr(error, "error_code", ""))


def _classes(error: BaseException) -> set[str]:
    return {each.__name__ for each in type(error).__mro__}
