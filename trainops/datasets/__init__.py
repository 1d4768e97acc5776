"""Registered directories: manifest, verification, and files that are checked as they are read.

No torch, no Django; the readers of their formats are in `trainops.learning.readers`.
"""
