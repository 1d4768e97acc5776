"""Serializers of the lines of a log, and of the query for them."""

from typing import Any

from rest_framework import serializers

from apps.operations import log_lines
from apps.operations.filters import AttemptQuery


class LogLinesQuery(AttemptQuery):
    after = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=2**63 - 1,
        help_text="`last_id` of a response: the lines after it; without search.",
    )
    before = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=2**63 - 1,
        help_text="`first_id` of a response: the lines before it; without search.",
    )
    search = serializers.CharField(
        required=False, default="", allow_blank=True, max_length=200, trim_whitespace=False,
        help_text="Only lines with this text, in any case.",
    )  # fmt: skip
    level = serializers.ChoiceField(
        required=False,
        choices=log_lines.LEVELS,
        help_text="Only lines of at least this level.",
        error_messages={"invalid_choice": f"got {{input}}; allowed: {', '.join(log_lines.LEVELS)}"},
    )
    since = serializers.DateTimeField(
        required=False, help_text="Only output that was stored at this time or later."
    )
    around = serializers.IntegerField(
        required=False, default=0, min_value=0, max_value=20, help_text="Lines around each match."
    )
    limit = serializers.IntegerField(
        required=False, default=200, min_value=1, max_value=10_000,
        help_text="Maximum number of matching lines; the last ones are returned.",
    )  # fmt: skip

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Allow a search or a window, not both."""
        is_search = bool(attrs["search"] or "level" in attrs or "since" in attrs)
        for name in ("after", "before"):
            if name in attrs and (is_search or {"after", "before"} <= attrs.keys()):
                allowed = "one of after, before, or a search by search, level, since"
                problem = f"got {attrs[name]} too; allowed: {allowed}"
                raise serializers.ValidationError({name: problem})
        return attrs | {"is_search": is_search}


class LogLineSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField(help_text="Chunk in which the line begins.")
    attempt = serializers.IntegerField()
    at = serializers.DateTimeField(help_text="Its own time; without one, when it was stored.")
    level = serializers.ChoiceField(choices=log_lines.LEVELS, allow_blank=True)
    text = serializers.CharField(allow_blank=True)
    prefix = serializers.IntegerField(help_text="Characters of its own time and level.")
    continues = serializers.BooleanField(help_text="The text continues the previous line.")
    is_hit = serializers.BooleanField(help_text="Whether it matches a search, or is context.")
    group = serializers.IntegerField(help_text="Number of the lines without a gap.")


class LogLinesSerializer(serializers.Serializer[Any]):
    lines = LogLineSerializer(many=True)
    first_id = serializers.IntegerField(help_text="Value for `before` of the next request.")
    last_id = serializers.IntegerField(help_text="Value for `after` of the next request.")
    has_before = serializers.BooleanField()
    has_after = serializers.BooleanField()
    count = serializers.IntegerField(help_text="Number of matching lines, all of them.")
