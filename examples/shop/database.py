"""The shop's SQLite database: customers, products with their stock, and orders; the same rows each time it is made."""

import atexit
import random
import sqlite3
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from datetime import date, timedelta
from functools import cache
from pathlib import Path

__all__ = ("create", "database_path", "reading", "writing")

SEED = 20_240_229
CITIES = ("Lyon", "Porto", "Ghent", "Turin", "Graz", "Malmö")
FIRST_NAMES = ("Ada", "Bruno", "Chloé", "Dmitri", "Elif", "Farid", "Greta", "Hugo", "Inês", "Jonas")
LAST_NAMES = ("Almeida", "Bauer", "Costa", "Dubois", "Eriksson", "Ferrari", "Gruber", "Horvat")
ADJECTIVES = ("Oak", "Steel", "Linen", "Copper", "Slate")
THINGS = ("Lamp", "Chair", "Kettle", "Blanket", "Clock", "Shelf", "Mug", "Basket")
STATUSES = ("pending", "paid", "shipped", "cancelled")

SCHEMA = """
CREATE TABLE customers (id TEXT PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL, city TEXT NOT NULL);
CREATE TABLE products (
    sku TEXT PRIMARY KEY, name TEXT NOT NULL, price_cents INTEGER NOT NULL, stock INTEGER NOT NULL CHECK (stock >= 0)
);
CREATE TABLE orders (
    id TEXT PRIMARY KEY, customer_id TEXT NOT NULL REFERENCES customers, status TEXT NOT NULL, placed_on TEXT NOT NULL,
    note TEXT NOT NULL DEFAULT ''
);
CREATE TABLE lines (order_id TEXT NOT NULL REFERENCES orders, sku TEXT NOT NULL REFERENCES products, quantity INTEGER NOT NULL);
"""

# The database of this call; tools find it through the context that the registry carries into them.
database_path: ContextVar[Path | None] = ContextVar("database_path", default=None)


def create(path: Path) -> Path:
    """Write the shop's database to `path`, which must not exist yet, and give the path back."""
    draw = random.Random(SEED)
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(SCHEMA)
        database.executemany("INSERT INTO customers VALUES (?, ?, ?, ?)", _customers(draw))
        database.executemany("INSERT INTO products VALUES (?, ?, ?, ?)", _products(draw))
        database.executemany("INSERT INTO orders (id, customer_id, status, placed_on) VALUES (?, ?, ?, ?)", _orders(draw))
        database.executemany("INSERT INTO lines VALUES (?, ?, ?)", _lines(draw))
    return path


@contextmanager
def reading() -> Generator[sqlite3.Connection]:
    """Open the shop's database for reading; rows are read by column name."""
    with closing(sqlite3.connect(database_path.get() or _own_database(), timeout=30, isolation_level=None)) as database:
        database.row_factory = sqlite3.Row
        yield database


@contextmanager
def writing() -> Generator[sqlite3.Connection]:
    """Open the shop's database for one transaction: kept when the block ends well, undone when it raises."""
    with reading() as database:
        database.execute("BEGIN IMMEDIATE")
        try:
            yield database
        except BaseException:
            database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")


@cache
def _own_database() -> Path:
    """Make a database for this process, when nobody named one: the command line's calls use it."""
    folder = tempfile.TemporaryDirectory(prefix="callgate-shop-")
    atexit.register(folder.cleanup)
    return create(Path(folder.name) / "shop.sqlite")


def _customers(draw: random.Random) -> Iterator[tuple[str, str, str, str]]:
    for number in range(1, 61):
        first, last = draw.choice(FIRST_NAMES), draw.choice(LAST_NAMES)
        yield f"C-{number:03}", f"{first} {last}", f"customer{number}@example.com", draw.choice(CITIES)


def _products(draw: random.Random) -> Iterator[tuple[str, str, int, int]]:
    names = [f"{adjective} {thing}" for adjective in ADJECTIVES for thing in THINGS]
    for number, name in enumerate(names, start=1):
        yield f"SKU-{number:03}", name, draw.randrange(500, 20_000, 50), draw.randrange(20, 200)


def _orders(draw: random.Random) -> Iterator[tuple[str, str, str, str]]:
    first_day = date(2024, 1, 1)
    for number in range(1, 301):
        placed_on = first_day + timedelta(days=number // 2)
        yield f"O-{number:04}", f"C-{draw.randint(1, 60):03}", draw.choice(STATUSES), placed_on.isoformat()


def _lines(draw: random.Random) -> Iterator[tuple[str, str, int]]:
    for number in range(1, 301):
        for product in draw.sample(range(1, 41), draw.randint(1, 4)):
            yield f"O-{number:04}", f"SKU-{product:03}", draw.randint(1, 5)
