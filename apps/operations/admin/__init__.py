"""Registers the pages of operations, of what they leave behind, and of their checkpoints."""

from apps.operations.admin import checkpoints, operations, records, shares

__all__ = ["checkpoints", "operations", "records", "shares"]
