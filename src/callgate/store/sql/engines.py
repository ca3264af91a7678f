"""Open a database: two engines, their settings, and the schema brought to the newest version before anything else."""

import contextlib
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from callgate.errors import StoreError, UsageError

__all__ = ("Engines", "open_engines", "read_url")

_BUSY_MS: Final = 30_000
_IDLE_MS: Final = 60_000
"""How long PostgreSQL lets a process that was stopped in a transaction keep its locks, for which others may wait."""

_KEEPALIVES: Final = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
"""How a connection is noticed whose other end is gone without a word, unless the address says otherwise."""

_DRIVERS: Final = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_LOCK: Final = 0x63616C6C67617465
_MIGRATIONS: Final = Path(__file__).parent / "migrations"


@dataclass(frozen=True, slots=True)
class Engines:
    """Hold the engine of the writer thread and the one of readers."""

    writing: Engine
    reading: Engine

    def dispose(self) -> None:
        """Let go of all connections."""
        self.writing.dispose()
        self.reading.dispose()


def read_url(url: str) -> URL:
    """Read a database's address: `sqlite:///file.db` or `postgresql://…`.

    Raises:
        UsageError: it is another thing.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise UsageError("a store is at sqlite:///file.db or postgresql://user@host/name; what was given is neither") from error
    driver = _DRIVERS.get(parsed.get_backend_name())
    if driver is None:
        raise UsageError(f"a store is on SQLite or PostgreSQL, not on {parsed.get_backend_name()}")
    if driver == "sqlite" and parsed.database in {None, "", ":memory:"}:
        raise UsageError("SQLite in memory is another database for each connection: use MemoryStore(), or a file")
    return parsed.set(drivername=driver)  # whatever driver an address of the host's own program names


def open_engines(url: URL) -> Engines:
    """Open the database and migrate its schema.

    Raises:
        StoreError: it cannot be opened, or was written by a newer release; nothing was changed.
    """
    is_sqlite = url.get_backend_name() == "sqlite"
    try:
        arguments = {} if is_sqlite else {name: value for name, value in _KEEPALIVES.items() if name not in url.query}
        writing = create_engine(url, pool_size=1, max_overflow=0, connect_args=arguments)  # the writer thread's
        reading = create_engine(url, pool_size=4, max_overflow=4, connect_args=arguments, pool_pre_ping=not is_sqlite)
    except ModuleNotFoundError as error:
        raise UsageError(f"a store on PostgreSQL needs {error.name}: install callgate with its extra postgres") from error
    if is_sqlite:
        _set_up_sqlite(writing, "BEGIN IMMEDIATE")
        _set_up_sqlite(reading, "BEGIN")
    else:
        _set_up_postgresql(writing)
        _set_up_postgresql(reading)
    engines = Engines(writing, reading)
    try:
        _migrate(writing)
        if is_sqlite:
            _hold_on_to_file(engines, Path(str(url.database)).absolute())
    except SQLAlchemyError as error:
        engines.dispose()
        which = f"the store {url.database!r}" if is_sqlite else "the store"  # an address may hold a secret anywhere
        raise StoreError(f"{which} cannot be opened: {type(error).__name__}") from error
    except BaseException:
        engines.dispose()
        raise
    return engines


def _set_up_sqlite(engine: Engine, begin: str) -> None:
    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver begins no transactions of its own
        connection.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
        _use_wal(connection)
        connection.execute("PRAGMA synchronous=FULL")

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        connection.exec_driver_sql(begin)


def _hold_on_to_file(engines: Engines, file: Path) -> None:
    """Refuse to go on when the file is not the one that was opened: what is written to a removed file is recorded nowhere."""

    def identify() -> tuple[int, int] | None:
        with contextlib.suppress(OSError):
            found = file.stat()
            return found.st_dev, found.st_ino
        return None

    opened = identify()

    def check(*_event: object) -> None:
        if identify() != opened:
            raise StoreError("the file of the store was removed or replaced while it was open; nothing was recorded")

    for engine in (engines.writing, engines.reading):
        event.listen(engine, "do_connect", check)
        event.listen(engine, "begin", check)


def _set_up_postgresql(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.execute(f"SET idle_in_transaction_session_timeout = {_IDLE_MS}")
        connection.commit()


def _use_wal(connection: Any) -> None:
    """Switch to write-ahead logging; SQLite does not wait for another process that does the same, so this waits itself."""
    until = time.monotonic() + _BUSY_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except Exception as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _migrate(engine: Engine) -> None:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    with _locked(engine) as connection:
        current = MigrationContext.configure(connection, opts={"version_table": "callgate_schema"}).get_current_revision()
        known = {script.revision for script in scripts.walk_revisions()}
        if current is not None and current not in known:
            raise StoreError(f"the store has the schema {current}, which a newer release of callgate made: upgrade this one")
        if current != scripts.get_current_head():
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


@contextlib.contextmanager
def _locked(engine: Engine) -> Generator[Connection]:
    """Give a connection in a transaction that no other process can have at the same time."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        yield connection
