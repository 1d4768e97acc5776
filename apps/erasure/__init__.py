"""Erasure of one person's data: a plan, the erasure that follows it, and a signed certificate.

The plan is in a row before anything is deleted, and every step may be repeated: an erasure that was
killed is continued by the next call, and its certificate names what both have erased.
"""
