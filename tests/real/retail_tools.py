"""The sixteen tools of the τ²-bench retail shop, written as a user of callgate would write them.

Their names, arguments, answers and refusals are those of the recorded data; the code is our own. The records stay
untouched: a shop copies an order or a user the first time that it changes one.
"""

import ast
import operator
from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Annotated, Any, Literal

from pydantic import Field

from callgate import ToolError, tool

Record = dict[str, Any]
Table = Mapping[str, Record]

OrderId = Annotated[str, Field(description="The order id, with the # in front, such as '#W0000000'.")]
ItemId = Annotated[str, Field(description="The item id, such as '1008292230'; each variant of a product has its own.")]
Items = Annotated[list[ItemId], Field(min_length=1)]
PaymentMethodId = Annotated[str, Field(description="A payment method of the user's profile, such as 'gift_card_0000000'.")]
UserId = Annotated[str, Field(description="The user id, such as 'sara_doe_496'.")]

_LATER_FIELDS = (
    "cancel_reason",
    "exchange_items",
    "exchange_new_items",
    "exchange_payment_method_id",
    "exchange_price_difference",
    "return_items",
    "return_payment_method_id",
)
_SIGNS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


class Shop:
    """Serve one conversation on its own copy of the shop's records."""

    def __init__(self, records: Mapping[str, Table]) -> None:
        self._records = records
        self._copies: dict[str, dict[str, Record]] = {"orders": {}, "users": {}}
        self._item_owners = {item: product for product in records["products"].values() for item in product["variants"]}

    def tools(self) -> list[Callable[..., Any]]:
        """Give the sixteen tools, bound to this shop."""
        return [
            self.calculate,
            self.cancel_pending_order,
            self.exchange_delivered_order_items,
            self.find_user_id_by_email,
            self.find_user_id_by_name_zip,
            self.get_item_details,
            self.get_order_details,
            self.get_product_details,
            self.get_user_details,
            self.list_all_product_types,
            self.modify_pending_order_address,
            self.modify_pending_order_items,
            self.modify_pending_order_payment,
            self.modify_user_address,
            self.return_delivered_order_items,
            self.transfer_to_human_agents,
        ]

    def changed(self) -> dict[str, dict[str, Record]]:
        """Give the records that are not as they were when the shop opened."""
        written = {
            table: {key: copy for key, copy in copies.items() if copy != self._opened(table, key)}
            for table, copies in self._copies.items()
        }
        return {**written, "products": {}}

    # ── finding and reading ──────────────────────────────────────────────────────────────────────────────────────────

    @tool(kind="read")
    def find_user_id_by_email(self, email: Annotated[str, Field(description="The address that the user gave.")]) -> str:
        """Find a user by e-mail address."""
        return self._only_user(lambda user: user["email"].casefold() == email.casefold())

    @tool(kind="read")
    def find_user_id_by_name_zip(self, first_name: str, last_name: str, zip: str) -> str:  # noqa: A002 - the recorded name
        """Find a user by name and zip code, when the e-mail address is not known.

        Args:
            first_name: The given name, in any case.
            last_name: The family name, in any case.
            zip: The zip code of the user's own address.
        """
        wanted = (first_name.casefold(), last_name.casefold(), zip)
        return self._only_user(lambda user: (*_name_of(user), user["address"]["zip"]) == wanted)

    @tool(kind="read")
    def get_user_details(self, user_id: UserId) -> Record:
        """Show a user's name, address, payment methods and order ids."""
        return deepcopy(self._user(user_id))

    @tool(kind="read")
    def get_order_details(self, order_id: OrderId) -> Record:
        """Show an order with its items, its status and its payments."""
        return deepcopy(self._order(order_id))

    @tool(kind="read")
    def get_product_details(
        self, product_id: Annotated[str, Field(description="The product id, such as '6086499569'; it is no item id.")]
    ) -> Record:
        """Show a product with all of its variants."""
        product = self._records["products"].get(product_id)
        if product is None:
            raise ToolError("Product not found", code="not_found", status=404, try_other_arguments=True)
        return product

    @tool(kind="read")
    def get_item_details(self, item_id: ItemId) -> Record:
        """Show one variant of a product: its options, its price and whether it is available."""
        return self._variant(item_id)

    @tool(kind="read")
    def list_all_product_types(self) -> dict[str, str]:
        """List the names of all product types with their product ids."""
        named = {product["name"]: product["product_id"] for product in self._records["products"].values()}
        return dict(sorted(named.items()))

    @tool(kind="read")
    def calculate(
        self, expression: Annotated[str, Field(pattern=r"^[0-9+\-*/(). ]+$", description="Numbers with + - * / and parentheses.")]
    ) -> str:
        """Calculate the value of an expression, rounded to two places."""
        try:
            value = _calculated(ast.parse(expression.strip(), mode="eval").body)
        except (SyntaxError, ZeroDivisionError, OverflowError, RecursionError) as error:
            raise ToolError("The expression cannot be calculated", try_other_arguments=True) from error
        return str(round(float(value), 2))

    @tool(kind="read")
    def transfer_to_human_agents(self, summary: Annotated[str, Field(description="What the user needs, in short.")]) -> str:
        """Hand the user over to a human agent, on request or when no tool can help."""
        return "Transfer successful"

    # ── changing pending orders ──────────────────────────────────────────────────────────────────────────────────────

    @tool(kind="write", needs_approval=True)
    def cancel_pending_order(self, order_id: OrderId, reason: Literal["no longer needed", "ordered by mistake"]) -> Record:
        """Cancel an order that is pending and give its payments back, to gift cards at once.

        Args:
            reason: Why the user cancels.
        """
        order = self._writable_order(order_id, ("pending",), "Non-pending order cannot be cancelled")
        refunds = [{**payment, "transaction_type": "refund"} for payment in order["payment_history"]]
        for refund in refunds:
            self._pay_in(order["user_id"], refund["payment_method_id"], refund["amount"])
        order.update(status="cancelled", cancel_reason=reason)
        order["payment_history"].extend(refunds)
        return deepcopy(order)

    @tool(kind="write", needs_approval=True)
    def modify_pending_order_items(
        self, order_id: OrderId, item_ids: Items, new_item_ids: Items, payment_method_id: PaymentMethodId
    ) -> Record:
        """Change items of a pending order to other variants of the same products; this works once for an order.

        Args:
            item_ids: The items to change, one entry for each piece.
            new_item_ids: For each of them, in the same order, what it becomes.
            payment_method_id: Pays or gets the difference in price.
        """
        order = self._writable_order(order_id, ("pending",), "Non-pending order cannot be modified")
        swaps, difference = self._swaps(order, item_ids, new_item_ids)
        self._check_payment(order, payment_method_id, difference)
        _, last = swaps[-1]
        for item, variant in swaps:
            # The recorded shop gives every changed item the price and the options of the last one.
            item.update(item_id=variant["item_id"], price=last["price"], options=deepcopy(last["options"]))
        sort = "payment" if difference > 0 else "refund"
        payment = {"transaction_type": sort, "amount": abs(difference), "payment_method_id": payment_method_id}
        order["payment_history"].append(payment)
        self._pay_in(order["user_id"], payment_method_id, -difference)
        order["status"] = "pending (item modified)"
        return deepcopy(order)

    @tool(kind="write", needs_approval=True)
    def modify_pending_order_payment(self, order_id: OrderId, payment_method_id: PaymentMethodId) -> Record:
        """Pay a pending order in another way; what was paid before is given back."""
        order = self._writable_order(order_id, _PENDING, "Non-pending order cannot be modified")
        (paid, *others) = order["payment_history"]
        if others or paid["transaction_type"] != "payment":
            raise ToolError("The payment of this order was changed before", try_other_arguments=False)
        if paid["payment_method_id"] == payment_method_id:
            raise ToolError("The order is paid in this way already", try_other_arguments=True)
        self._check_payment(order, payment_method_id, paid["amount"])
        order["payment_history"] += [
            {"transaction_type": "payment", "amount": paid["amount"], "payment_method_id": payment_method_id},
            {**paid, "transaction_type": "refund"},
        ]
        self._pay_in(order["user_id"], payment_method_id, -paid["amount"])
        self._pay_in(order["user_id"], paid["payment_method_id"], paid["amount"])
        return deepcopy(order)

    @tool(kind="write", needs_approval=True)
    def modify_pending_order_address(
        self,
        order_id: OrderId,
        address1: str,
        address2: str,
        city: str,
        state: str,
        country: str,
        zip: str,  # noqa: A002
    ) -> Record:
        """Send a pending order to another address.

        Args:
            address1: Street and number.
            address2: Suite or apartment; empty when there is none.
            city: The city.
            state: The state, in two letters.
            country: The country, such as 'USA'.
            zip: The zip code.
        """
        order = self._writable_order(order_id, _PENDING, "Non-pending order cannot be modified")
        order["address"] = _address(address1, address2, city, state, country, zip)
        return deepcopy(order)

    @tool(kind="write", needs_approval=True)
    def modify_user_address(
        self,
        user_id: UserId,
        address1: str,
        address2: str,
        city: str,
        state: str,
        country: str,
        zip: str,  # noqa: A002
    ) -> Record:
        """Change the default address of a user; orders keep theirs.

        Args:
            address1: Street and number.
            address2: Suite or apartment; empty when there is none.
            city: The city.
            state: The state, in two letters.
            country: The country, such as 'USA'.
            zip: The zip code.
        """
        self._user(user_id)
        user = self._writable("users", user_id)
        user["address"] = _address(address1, address2, city, state, country, zip)
        return deepcopy(user)

    # ── after the delivery ───────────────────────────────────────────────────────────────────────────────────────────

    @tool(kind="write", needs_approval=True)
    def return_delivered_order_items(
        self,
        order_id: OrderId,
        item_ids: Annotated[Items, Field(description="The items to send back, one entry for each piece.")],
        payment_method_id: PaymentMethodId,
    ) -> Record:
        """Ask for the return of items of a delivered order; the money goes to the first payment method or to a gift card."""
        order = self._writable_order(order_id, ("delivered",), "Non-delivered order cannot be returned")
        method = self._payment_method(order, payment_method_id)
        if method["source"] != "gift_card" and payment_method_id != order["payment_history"][0]["payment_method_id"]:
            raise ToolError("A return is paid to the original payment method or to a gift card", try_other_arguments=True)
        _taken(order, item_ids)
        order.update(status="return requested", return_items=sorted(item_ids), return_payment_method_id=payment_method_id)
        return deepcopy(order)

    @tool(kind="write", needs_approval=True)
    def exchange_delivered_order_items(
        self, order_id: OrderId, item_ids: Items, new_item_ids: Items, payment_method_id: PaymentMethodId
    ) -> Record:
        """Ask for the exchange of items of a delivered order against other variants of the same products.

        Args:
            item_ids: The items to give back, one entry for each piece.
            new_item_ids: For each of them, in the same order, what comes in its place.
            payment_method_id: Pays or gets the difference in price.
        """
        order = self._writable_order(order_id, ("delivered",), "Non-delivered order cannot be exchanged")
        _, difference = self._swaps(order, item_ids, new_item_ids)
        self._check_payment(order, payment_method_id, round(difference, 2))
        order.update(
            status="exchange requested",
            exchange_items=sorted(item_ids),
            exchange_new_items=sorted(new_item_ids),
            exchange_payment_method_id=payment_method_id,
            exchange_price_difference=round(difference, 2),
        )
        return deepcopy(order)

    # ── the records ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _opened(self, table: str, key: str) -> Record:
        record = self._records[table][key]
        return {**record, **dict.fromkeys(_LATER_FIELDS)} if table == "orders" else record

    def _order(self, order_id: str) -> Record:
        if order_id not in self._records["orders"]:
            raise ToolError("Order not found", code="not_found", status=404, try_other_arguments=True)
        return self._copies["orders"].get(order_id) or self._opened("orders", order_id)

    def _user(self, user_id: str) -> Record:
        if user_id not in self._records["users"]:
            raise ToolError("User not found", code="not_found", status=404, try_other_arguments=True)
        return self._copies["users"].get(user_id) or self._opened("users", user_id)

    def _only_user(self, fits: Callable[[Record], bool]) -> str:
        found = [user_id for user_id in self._records["users"] if fits(self._user(user_id))]
        if not found:
            raise ToolError("User not found", code="not_found", status=404, try_other_arguments=True)
        return found[0]

    def _variant(self, item_id: str) -> Record:
        product = self._item_owners.get(item_id)
        if product is None:
            raise ToolError("Item not found", code="not_found", status=404, try_other_arguments=True)
        return product["variants"][item_id]

    def _writable(self, table: str, key: str) -> Record:
        copies = self._copies[table]
        if key not in copies:
            copies[key] = deepcopy(self._opened(table, key))
        return copies[key]

    def _writable_order(self, order_id: str, statuses: tuple[str, ...], refusal: str) -> Record:
        if self._order(order_id)["status"] not in statuses:
            raise ToolError(refusal, code="wrong_status", status=409, try_other_arguments=False)
        return self._writable("orders", order_id)

    # ── items and money ──────────────────────────────────────────────────────────────────────────────────────────────

    def _swaps(self, order: Record, item_ids: list[str], new_item_ids: list[str]) -> tuple[list[tuple[Record, Record]], float]:
        """Pair the items with the variants that take their place, and give the difference in price (above 0: to be paid)."""
        if len(item_ids) != len(new_item_ids):
            raise ToolError("As many new items as old ones are needed", try_other_arguments=True)
        swaps: list[tuple[Record, Record]] = []
        difference = 0.0
        for item, new_item_id in zip(_taken(order, item_ids), new_item_ids, strict=True):
            variant = self._records["products"][item["product_id"]]["variants"].get(new_item_id)
            if variant is None or not variant["available"]:
                raise ToolError(f"New item {new_item_id} not found or not available", try_other_arguments=True)
            swaps.append((item, variant))
            difference += variant["price"] - item["price"]
        return swaps, difference

    def _payment_method(self, order: Record, payment_method_id: str) -> Record:
        method = self._user(order["user_id"])["payment_methods"].get(payment_method_id)
        if method is None:
            raise ToolError("Payment method not found", code="not_found", status=404, try_other_arguments=True)
        return method

    def _check_payment(self, order: Record, payment_method_id: str, amount: float) -> None:
        method = self._payment_method(order, payment_method_id)
        if method["source"] == "gift_card" and method["balance"] < amount:
            raise ToolError("Insufficient gift card balance to pay for the price difference", try_other_arguments=True)

    def _pay_in(self, user_id: str, payment_method_id: str, amount: float) -> None:
        """Move money to a gift card, or from it when `amount` is below 0; other methods are settled elsewhere."""
        if self._user(user_id)["payment_methods"][payment_method_id]["source"] != "gift_card":
            return
        card = self._writable("users", user_id)["payment_methods"][payment_method_id]
        card["balance"] = round(card["balance"] + amount, 2)


_PENDING = ("pending", "pending (item modified)")


def _taken(order: Record, item_ids: list[str]) -> list[Record]:
    """Give an item of the order for each id, a piece of its own for each time that an id is named."""
    pieces: dict[str, list[Record]] = {}
    for item in order["items"]:
        pieces.setdefault(item["item_id"], []).append(item)
    for item_id, count in Counter(item_ids).items():
        if count > len(pieces.get(item_id, ())):
            raise ToolError(f"Item {item_id} is not in the order as often as named", try_other_arguments=True)
    return [pieces[item_id].pop(0) for item_id in item_ids]


def _name_of(user: Record) -> tuple[str, str]:
    return user["name"]["first_name"].casefold(), user["name"]["last_name"].casefold()


def _address(address1: str, address2: str, city: str, state: str, country: str, zip_code: str) -> Record:
    return {"address1": address1, "address2": address2, "city": city, "country": country, "state": state, "zip": zip_code}


def _calculated(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)](_calculated(left), _calculated(right))
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)](_calculated(operand))
        case _:
            raise SyntaxError("no calculation")
