"""The version of trainops: of the server and of its client, which are released together."""

VERSION = "0.1.0"
