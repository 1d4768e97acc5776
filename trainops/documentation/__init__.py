"""The pages of the documentation: for the product under /docs/, and for MkDocs.

Pages are the Markdown files of the repository (a wheel holds copies of them), and pages generated
from schemas, commands and docstrings. Nothing here imports torch or Django.
"""
