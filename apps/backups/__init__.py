"""Backups of a whole installation: the database, and the files that its rows have.

In a directory, or below a prefix of a bucket:

    files/1f/1f0c…       each file once, named by the BLAKE3 digest of its content
    snapshots/20261126T180000Z/
        database         of SQLite a file, of PostgreSQL an archive of pg_dump
        secret_key       unless it comes from the environment
        snapshot.json    what belongs to this backup; written last
    encryption.json      only with a key: its id

A file that an earlier backup has is not copied again. Checkpoints and datasets never change, so
everything in `files` can be compared with its name at any time. With a key everything but
encryption.json is encrypted, and files are named by a keyed digest of their digest.
"""
