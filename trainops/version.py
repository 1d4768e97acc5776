"""The version of trainops: of the server and of its client, which are released together."""

VERSION = "0.2.0.dev0"
