"""Metric points of operations: as rows, packed, thinned and exported."""
