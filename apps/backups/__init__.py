"""Backups of a whole installation: the database, and the files that its rows have.

    DIRECTORY/
        files/1f/1f0c…       each file once, named by the BLAKE3 digest of its content
        snapshots/20261126T180000Z/
            snapshot.json    what belongs to this backup; written last
            database         of SQLite a file, of PostgreSQL an archive of pg_dump
            secret_key       unless it comes from the environment

A file that an earlier backup has is not copied again. Checkpoints and datasets never change, so
everything in `files` can be compared with its name at any time.
"""
