#!/bin/sh
# Secrets may come as files: for every variable NAME_FILE that holds a path, NAME is set to the
# file's content. Then the command takes this shell's place, so that signals reach it.
set -eu
umask "${TRAINOPS_UMASK:-077}"

for name in TRAINOPS_SECRET_KEY TRAINOPS_DATABASE_URL TRAINOPS_BROKER_URL \
    TRAINOPS_ADMIN_PASSWORD TRAINOPS_MAIL_URL TRAINOPS_METRICS_TOKEN TRAINOPS_SENTRY_DSN \
    PGPASSWORD AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY \
    AZURE_STORAGE_KEY AZURE_STORAGE_SAS_TOKEN AZURE_STORAGE_CONNECTION_STRING; do
    eval "path=\${${name}_FILE:-}"
    if [ -n "$path" ]; then
        if [ ! -r "$path" ]; then
            echo "${name}_FILE: $path cannot be read by user $(id -u)" >&2
            exit 2
        fi
        export "$name=$(cat "$path")"
    fi
done

exec "$@"
