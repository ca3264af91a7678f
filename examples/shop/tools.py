"""The shop's tools: reading and writing, async and sync, and those that go wrong as real ones do."""

import asyncio
import os
import random
import signal
import sqlite3
import struct
import time
import zlib
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

from pydantic import Field

from callgate import ToolError, ToolRegistry, tool
from examples.shop.database import reading, writing

__all__ = ("SECRET", "Customer", "Order", "OrderLine", "registry")

SECRET = "sk_live_51c0ffee"  # noqa: S105 - made up; the demo proves that it reaches nobody

CustomerId = Annotated[str, Field(pattern=r"^C-\d{3}$", description="Such as C-001.")]
OrderId = Annotated[str, Field(pattern=r"^O-\d{4}$", description="Such as O-0001.")]
Sku = Annotated[str, Field(pattern=r"^SKU-\d{3}$", description="Such as SKU-001.")]
Status = Literal["pending", "paid", "shipped", "cancelled"]


@dataclass(frozen=True)
class Customer:
    """Describe one customer."""

    id: str
    name: str
    email: str
    city: str


@dataclass(frozen=True)
class OrderLine:
    """Say how many of a product are ordered."""

    sku: Sku
    quantity: Annotated[int, Field(ge=1, le=99)]


@dataclass(frozen=True)
class Order:
    """Describe one order with its lines."""

    id: str
    customer_id: str
    status: str
    placed_on: date
    lines: list[OrderLine]


@tool(kind="read")
def find_customers(text: str, limit: Annotated[int, Field(ge=1, le=50)] = 10) -> list[Customer]:
    """Find customers whose name or city holds a text.

    Args:
        text: What to look for; upper and lower case are the same.
        limit: How many to give at most.
    """
    query = "SELECT * FROM customers WHERE name || ' ' || city LIKE '%' || ? || '%' ORDER BY id LIMIT ?"
    with reading() as database:
        return [Customer(**row) for row in database.execute(query, (text, limit))]


@tool(kind="read", timeout_s=10)
async def get_order(order_id: OrderId) -> Order:
    """Give one order with its lines."""
    return await asyncio.to_thread(_read_order, order_id)


@tool(kind="read", max_output_bytes=2_000, on_oversize="truncate")
def list_orders(
    customer_id: CustomerId | None = None, status: Status | None = None, placed_since: date | None = None
) -> list[Order]:
    """List orders, newest first; a long list is cut in its middle.

    Args:
        customer_id: Only this customer's.
        status: Only those in this state.
        placed_since: Only those placed on this day or later.
    """
    query = (
        "SELECT id FROM orders WHERE (?1 IS NULL OR customer_id = ?1) AND (?2 IS NULL OR status = ?2)"
        " AND (?3 IS NULL OR placed_on >= ?3) ORDER BY id DESC"
    )
    since = None if placed_since is None else placed_since.isoformat()
    with reading() as database:
        found = [row["id"] for row in database.execute(query, (customer_id, status, since))]
    return [_read_order(order_id) for order_id in found]


@tool(kind="read")
def check_stock(skus: Annotated[list[Sku], Field(min_length=1)]) -> dict[str, int]:
    """Tell how many of each product are in stock.

    Args:
        skus: The products.
    """
    with reading() as database:
        return {sku: _stock(database, sku) for sku in skus}


@tool(kind="read", max_output_bytes=2_000, on_oversize="spill")
def export_orders() -> list[Order]:
    """Give every order: the whole is stored, and can be read page by page."""
    with reading() as database:
        every = [row["id"] for row in database.execute("SELECT id FROM orders ORDER BY id")]
    return [_read_order(order_id) for order_id in every]


@tool(kind="read", max_output_bytes=4_000)
def dump_catalog() -> list[dict[str, object]]:
    """Give every product five times over, which is more than the cap allows."""
    with reading() as database:
        return [dict(row) for row in database.execute("SELECT * FROM products")] * 5


@tool(kind="read", timeout_s=0.5)
async def track_parcel(order_id: OrderId) -> str:
    """Ask the carrier where a parcel is; the carrier never answers."""
    await asyncio.Event().wait()
    return f"{order_id} is on its way"


@tool(kind="read", timeout_s=0.5)
def ask_supplier(sku: Sku) -> str:
    """Ask the supplier for a date, over a connection that does not notice that it is dead."""
    time.sleep(20)
    return f"{sku} in two weeks"


@tool(kind="read")
def product_image(sku: Sku) -> dict[str, object]:
    """Give a product's picture."""
    with reading() as database:
        _stock(database, sku)
    return {"sku": sku, "image": _png(shade=int(sku[-3:]))}


@tool(kind="read", run_in="process", timeout_s=2)
def forecast_demand(sku: Sku, simulations: Annotated[int, Field(ge=1)] = 20_000) -> dict[str, object]:
    """Simulate next week's demand for a product, on a processor of its own.

    Args:
        sku: The product.
        simulations: How many weeks to draw; more than some millions will not end in time.
    """
    draw = random.Random(sku)
    total = 0
    for _ in range(simulations):
        total += draw.randint(0, 10)
    return {"sku": sku, "expected_units": round(total / simulations, 1)}


@tool(kind="read", run_in="process", timeout_s=10)
def print_label(order_id: OrderId) -> str:
    """Print a parcel label, by a driver that takes its process down."""
    os.kill(os.getpid(), signal.SIGKILL)
    return order_id


@tool(kind="write")
def reserve_stock(sku: Sku, quantity: Annotated[int, Field(ge=1, le=50)] = 1) -> dict[str, object]:
    """Take units of a product out of the stock.

    Args:
        sku: The product.
        quantity: How many.
    """
    with writing() as database:
        left = _take(database, sku, quantity)
    return {"sku": sku, "reserved": quantity, "left": left}


@tool(kind="write")
def place_order(customer_id: CustomerId, lines: Annotated[list[OrderLine], Field(min_length=1)], *, gift: bool = False) -> Order:
    """Order products for a customer, and take them out of the stock.

    Args:
        customer_id: Who orders.
        lines: What, and how many of each.
        gift: Whether to wrap it.
    """
    with writing() as database:
        if database.execute("SELECT 1 FROM customers WHERE id = ?", (customer_id,)).fetchone() is None:
            raise ToolError(f"There is no customer {customer_id}.", code="unknown_customer", status=404)
        for line in lines:
            _take(database, line.sku, line.quantity)
        order_id = _insert_order(database, customer_id, lines, "gift" if gift else "")
    return _read_order(order_id)


@tool(kind="write", needs_approval=True)
async def cancel_order(order_id: OrderId, reason: str = "") -> Order:
    """Cancel an order that has not been shipped.

    Args:
        order_id: The order.
        reason: Why, in the customer's words.
    """
    await asyncio.to_thread(_cancel, order_id, reason)
    return await asyncio.to_thread(_read_order, order_id)


@tool(kind="write", needs_approval=True, tags=("money",))
def charge_card(order_id: OrderId) -> str:
    """Charge the customer's card, through a payment service that refuses the shop's key."""
    raise ConnectionError(f"401 from the payment service: invalid api key {SECRET} for {order_id}")


def _read_order(order_id: str) -> Order:
    with reading() as database:
        row = database.execute("SELECT * FROM orders WHERE id = ?", (order_id,)).fetchone()
        lines = database.execute("SELECT sku, quantity FROM lines WHERE order_id = ? ORDER BY sku", (order_id,)).fetchall()
    if row is None:
        raise ToolError(f"There is no order {order_id}.", code="unknown_order", status=404, try_other_arguments=True)
    placed_on = date.fromisoformat(row["placed_on"])
    return Order(row["id"], row["customer_id"], row["status"], placed_on, [OrderLine(**line) for line in lines])


def _stock(database: sqlite3.Connection, sku: str) -> int:
    row = database.execute("SELECT stock FROM products WHERE sku = ?", (sku,)).fetchone()
    if row is None:
        raise ToolError(f"There is no product {sku}.", code="unknown_product", status=404, try_other_arguments=True)
    return int(row["stock"])


def _take(database: sqlite3.Connection, sku: str, quantity: int) -> int:
    left = _stock(database, sku) - quantity
    if left < 0:
        raise ToolError(
            f"Only {left + quantity} of {sku} are in stock.", code="out_of_stock", status=409, try_other_arguments=True
        )
    database.execute("UPDATE products SET stock = ? WHERE sku = ?", (left, sku))
    return left


def _insert_order(database: sqlite3.Connection, customer_id: str, lines: list[OrderLine], note: str) -> str:
    (count,) = database.execute("SELECT count(*) FROM orders").fetchone()
    order_id = f"O-{count + 1:04}"
    database.execute("INSERT INTO orders VALUES (?, ?, 'pending', '2024-07-01', ?)", (order_id, customer_id, note))
    database.executemany("INSERT INTO lines VALUES (?, ?, ?)", [(order_id, line.sku, line.quantity) for line in lines])
    return order_id


def _cancel(order_id: str, reason: str) -> None:
    status = _read_order(order_id).status
    if status == "shipped":
        raise ToolError(f"Order {order_id} is shipped; it can only be returned.", code="order_shipped", status=409)
    with writing() as database:
        database.execute("UPDATE orders SET status = 'cancelled', note = ? WHERE id = ?", (reason, order_id))


def _png(shade: int) -> bytes:
    """Draw a square of one shade of grey."""
    side = 8
    rows = (b"\0" + bytes([shade % 256]) * side) * side
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(kind, content) for kind, content in parts)


def _png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


registry = ToolRegistry(
    [
        find_customers,
        get_order,
        list_orders,
        check_stock,
        export_orders,
        dump_catalog,
        track_parcel,
        ask_supplier,
        product_image,
        forecast_demand,
        print_label,
        reserve_stock,
        place_order,
        cancel_order,
        charge_card,
    ]
)
