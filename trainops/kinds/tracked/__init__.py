"""Runs that another tool tracked, with their curves: see docs/sinks.md."""
