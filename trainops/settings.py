"""One settings module for every stack; the embedded one is the default."""

import os
from pathlib import Path
from typing import Any, Literal

import dj_database_url

from trainops import (
    checkpoint_storage,
    dataset_buckets,
    error_reports,
    log_format,
    metrics_settings,
    notification_settings,
    oidc_settings,
    paths,
    serving,
    sign_in_settings,
    signature_settings,
    thresholds,
)
from trainops.kind import KINDS
from trainops.runtime import implementation
from trainops.secret_key import secret_keys
from trainops.sinks import known as sinks
from trainops.tracing import TRACING

DATA_DIR = paths.data_dir().resolve()
THRESHOLDS = thresholds.read()
IMPLEMENTATION = implementation.read()  # an invalid value is refused at the start
SERVING = serving.read()
error_reports.start()
TRACING.start()

SECRET_KEY, *SECRET_KEY_FALLBACKS = secret_keys(DATA_DIR)
DEBUG = os.environ.get("TRAINOPS_DEBUG", "") == "1"
ALLOWED_HOSTS = (
    os.environ.get("TRAINOPS_ALLOWED_HOSTS") or "localhost,127.0.0.1,[::1],testserver"
).split(",")
# What a proxy says is believed only where there is one: anybody can send the same headers.
BEHIND_HTTPS_PROXY = os.environ.get("TRAINOPS_BEHIND_HTTPS_PROXY", "") == "1"
if BEHIND_HTTPS_PROXY:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_HSTS_SECONDS = 365 * 86_400
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BEHIND_HTTPS_PROXY
CSRF_TRUSTED_ORIGINS = [o for o in os.environ.get("TRAINOPS_TRUSTED_ORIGINS", "").split(",") if o]

INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "rest_framework",
    "knox",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_celery_beat",
    "trainops.http",
    "apps.installation",
    "apps.datasets",
    "apps.checkpoints",
    "apps.ledger",
    "apps.operations",
    "apps.notifications",
    "apps.sinks",
    "apps.workers",
    "apps.dashboard",
]
MIDDLEWARE = [
    "trainops.http.request_id.RequestIdMiddleware",
    "trainops.http.tracing.TracingMiddleware",
    "trainops.http.middleware.ApiEnvelopeMiddleware",
    "trainops.http.access_log.AccessLogMiddleware",
    "trainops.http.middleware.PatienceMiddleware",
    "trainops.http.compression.CompressionMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "apps.dashboard.csp.ContentSecurityPolicyMiddleware",
    "apps.dashboard.time_zone.TimeZoneMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "trainops.http.credentials.ProofMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "trainops.http.middleware.FormMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "trainops.urls"
WSGI_APPLICATION = "trainops.wsgi.application"


def _of_kinds(name: Literal["templates", "static"]) -> list[Path]:
    """Return the folders of this name that kinds bring for their panels."""
    found = (kind.web_directory(name) for kind in KINDS.values())
    return [each for each in found if each is not None]


TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [paths.TEMPLATES, *_of_kinds("templates")],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

DATABASE_URL = os.environ.get("TRAINOPS_DATABASE_URL") or f"sqlite:///{DATA_DIR}/trainops.sqlite3"
DATABASES: dict[str, Any] = {"default": dj_database_url.parse(DATABASE_URL)}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # WAL alone still fails with "database is locked" when a reader turns writer; IMMEDIATE takes
    # the write lock at BEGIN, where the timeout applies.
    DATABASES["default"]["OPTIONS"] = {
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
    # A file in tests, too: a database in memory would hide every race.
    DATABASES["default"]["TEST"] = {"NAME": DATA_DIR / "test.sqlite3"}
else:
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
    DATABASES["default"]["CONN_MAX_AGE"] = 60
    _GIVEN = DATABASES["default"].get("OPTIONS", {})  # of the URL, such as sslmode
    DATABASES["default"]["OPTIONS"] = {
        "connect_timeout": 3,
        "tcp_user_timeout": 5000,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        **_GIVEN,
        # A process that is frozen in the middle of a transaction must not keep its locks for ever.
        "options": "-c statement_timeout=15000 -c lock_timeout=5000"
        f" -c idle_in_transaction_session_timeout=10000 {_GIVEN.get('options', '')}".rstrip(),
    }
# Ours replaces its token table (KNOX_TOKEN_MODEL), but its migrations would still make it.
MIGRATION_MODULES = {"knox": None}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

BROKER_URL = (
    os.environ.get("TRAINOPS_BROKER_URL") or f"redis+socket://{DATA_DIR}/redis.sock?virtual_host=0"
)

# Webhooks are sent to public addresses; others are reached with the server's own network access.
WEBHOOK_PRIVATE_ADDRESSES = notification_settings.private_networks()
globals().update(notification_settings.mail_server())
PUBLIC_URL = notification_settings.public_url()
METRICS_TOKEN = metrics_settings.token()
METRICS_NETWORKS = metrics_settings.networks()
# Operations are written into these as files of other tools (apps.sinks).
SINKS = sinks.read()
SINKS_DIR = Path(os.environ.get("TRAINOPS_SINKS_DIR") or DATA_DIR / "sinks").resolve()
DISPATCH_IS_ON = True  # messages to the broker; tests without one switch them off
KNOX_TOKEN_MODEL = "access.Token"  # noqa: S105 - a model's name

_CHOSEN = checkpoint_storage.read()
CHECKPOINT_BUCKET = _CHOSEN if isinstance(_CHOSEN, checkpoint_storage.Bucket) else None
CHECKPOINT_SECRET_KEYS = checkpoint_storage.read_secret_keys(_CHOSEN)  # of objects in the bucket
# Beside a bucket this is where checkpoints are staged, and where copies of them are kept.
CHECKPOINT_ROOT = _CHOSEN if isinstance(_CHOSEN, Path) else DATA_DIR / "checkpoints"
STORAGES = {
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": DATA_DIR / "files"},
    },
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    "checkpoints": CHECKPOINT_BUCKET.backend()
    if CHECKPOINT_BUCKET
    else {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": CHECKPOINT_ROOT},
    },
    "datasets": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": DATA_DIR / "datasets"},
    },
}

# Directories below these can be registered as datasets; all workers must reach them.
DATASET_ROOTS = tuple(
    Path(each).resolve()
    for each in os.environ.get("TRAINOPS_DATASET_ROOTS", "").split(os.pathsep)
    if each
)

# Prefixes of buckets below which others can be registered as datasets.
DATASET_BUCKETS = dataset_buckets.read()

STATIC_URL = "/static/"
STATICFILES_DIRS = [paths.STATIC, *_of_kinds("static")]
WHITENOISE_USE_FINDERS = True  # no collectstatic step: the same command works everywhere
WHITENOISE_AUTOREFRESH = DEBUG
# The folders of vendored packages carry their version in their name.
WHITENOISE_IMMUTABLE_FILE_TEST = r"/vendor/[^/]+-\d+\.\d+\.\d+/"

AUTHENTICATION_BACKENDS = ["trainops.http.login_throttle.LoginThrottle"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("MinimumLengthValidator", "CommonPasswordValidator", "NumericPasswordValidator")
] + [{"NAME": "trainops.http.passwords.RevokesTokens"}]
PASSWORD_HASHERS = ["trainops.http.passwords.LimitedHasher"]
SECOND_FACTOR = sign_in_settings.second_factor()
REQUIRE_SIGNATURES = signature_settings.required()
OIDC = oidc_settings.read()
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login/"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True

LANGUAGE_CODE = "en"
TIME_ZONE = os.environ.get("TRAINOPS_TIME_ZONE") or "UTC"
USE_TZ = True
USE_I18N = False
FORMAT_MODULE_PATH = "trainops.formats"  # of the admin; the pages have apps.dashboard.formatting

DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024**2
FILE_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024**2
FILE_UPLOAD_TEMP_DIR = DATA_DIR / "uploads"  # /tmp may be small, and in memory
FILE_UPLOAD_TEMP_DIR.mkdir(parents=True, exist_ok=True)

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "trainops.http.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["trainops.http.permissions.RolePermission"],
    "DEFAULT_RENDERER_CLASSES": ["trainops.http.envelope.EnvelopeRenderer"],
    "DEFAULT_PARSER_CLASSES": ["trainops.http.parsers.JSONParser"],
    "DEFAULT_METADATA_CLASS": None,
    "URL_FORMAT_OVERRIDE": None,
    "DEFAULT_PAGINATION_CLASS": "trainops.http.pagination.NewestFirst",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "trainops.http.errors.exception_handler",
    "PAGE_SIZE": 50,
}
REST_KNOX = {"TOKEN_TTL": None, "AUTH_HEADER_PREFIX": "Bearer"}  # knox's own: tokens of 10 hours
SPECTACULAR_SETTINGS = {
    "TITLE": "trainops",
    "DESCRIPTION": "Submit, watch, stop and resume long machine-learning operations.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["trainops.http.permissions.IsViewer"],
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "trainops.http.schema.describe_envelope",
        "apps.operations.api.examples.add_examples",
    ],
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "GET_LIB_DOC_EXCLUDES": "trainops.http.schema.classes_without_description",
    "ENUM_NAME_OVERRIDES": {  # of fields that share a name; others are named by their field
        "AttemptDirectiveEnum": ["proceed", "cancel", "preempt", "kill"],
        "AttemptOutcomeEnum": "apps.operations.models.Attempt.Outcome",
        "CheckLevelEnum": ["ok", "warning", "failed"],
        "EndedOutcomeEnum": "apps.workers.reports.RECORDED_AS",
        "MediaTypeEnum": "trainops.media.items.TYPES",
        "OperationStatusEnum": "apps.operations.lifecycle.State",
        "SavedTypeEnum": ["periodic", "cancellation", "shutdown", "failure", "final"],
        "WorkerStatusEnum": "apps.workers.models.Worker.Status",
    },
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    # A refused request is an answer, not an error of ours: no traceback for it.
    "loggers": {
        "django.security.DisallowedHost": {"level": "CRITICAL"},
        "django.request": {"level": "ERROR"},
        "azure": {"level": "WARNING"},  # several lines for each request
        "trainops.access": {"level": "INFO"},  # whatever TRAINOPS_LOG_LEVEL is
    },
    "formatters": {
        "line": {
            "()": "trainops.text.LineFormatter",
            "format": "%(asctime)s %(levelname)s %(name)s: %(message)s",
            "datefmt": "%H:%M:%S",
        },
        "json": {"()": "trainops.log_format.JsonFormatter"},
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": log_format.read()}},
    "root": {"handlers": ["console"], "level": os.environ.get("TRAINOPS_LOG_LEVEL") or "INFO"},
}

# The pages' blue, in the shades that unfold asks for.
ADMIN_BLUE = {
    "50": "#eff6ff", "100": "#dbeafe", "200": "#bfdbfe", "300": "#93c5fd", "400": "#60a5fa",
    "500": "#2b87ea", "600": "#066fd1", "700": "#0a5cb0", "800": "#1e40af", "900": "#1e3a8a",
    "950": "#172554",
}  # fmt: skip
UNFOLD = {
    "SITE_TITLE": "trainops",
    "SITE_HEADER": "trainops",
    "SITE_URL": "/",
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": True,
    "COLORS": {"primary": ADMIN_BLUE},
    "STYLES": ["/static/css/states.css", "/static/css/admin.css"],
    "SCRIPTS": ["/static/js/admin.js"],
    "SIDEBAR": {"show_search": True, "navigation": "trainops.admin_base.navigation"},
}
