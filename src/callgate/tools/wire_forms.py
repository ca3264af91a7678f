"""`wire_form`: how arguments that were parsed are written again in the form in which their type is read.

A form is made of the core schema that validates and not of the one that serializes: policies, redactions and people know a
tool by the schema that a model sees. So nothing that a type says of its writing counts: neither a name nor a function for it,
nor that a field is left out. Where an author's validator made something of another form, what the model wrote stands.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from callgate.tools.core_rules import Node, parts_of
from callgate.tools.json_forms import (
    ABSENT,
    MASKED,
    MISFIT,
    SIMPLE,
    WireForm,
    as_written,
    dict_form,
    each_form,
    fields_of,
    forms_of,
    hidden_form,
    items_form,
    json_form,
    leaf_form,
)

__all__ = ("Forms", "wire_form")

Way: TypeAlias = Sequence[str | int]

_INNER: Final = {"default": "schema", "json-or-python": "json_schema", "lax-or-strict": "strict_schema"}
"""Where a core schema that only wraps another has it."""

_OF_AUTHOR: Final = frozenset({"function-after", "function-before", "function-plain", "function-wrap"})
_OVER_CLASS: Final = _OF_AUTHOR | {"nullable"}
_CLASSES: Final = frozenset({"dataclass", "model", "named-tuple"})
_FIELDS: Final = frozenset({"dataclass-args", "model-fields"})


def wire_form(core: Node, forms: "Forms") -> WireForm:
    """Make the form of the arguments that a core schema reads: always an object, whatever was made of them."""
    inner, whole = forms.of_arguments(core), forms.as_written(core)

    def form(value: object, written: object) -> object:
        try:
            made = inner(value, written)
        except RecursionError:  # an author's validator tied the parts to each other
            made = MISFIT
        return cast("object", made) if isinstance(made, dict) else whole(value, written)

    return form


@dataclass(frozen=True, slots=True)
class _Field:
    """Be one field of an object: what Python calls it, its name in the schema, and the ways on which it is read.

    `lost` gives the form of what the object does not have.
    """

    name: str
    wire: str
    ways: Sequence[Way]
    form: WireForm
    as_written: WireForm
    lost: WireForm
    is_open: bool
    """Whether a number or a text is its own form here: a secret that an author's validator has unwrapped is none."""

    def form_of(self, item: object, given: Mapping[str, object]) -> object:
        """Give the form of what the object has, next to what the model wrote for the whole object."""
        own = self._written(given)
        if item is ABSENT:
            return self.lost(item, own)
        form = self.form(item, own)
        return self.as_written(item, own) if form is MISFIT else form

    def _written(self, given: Mapping[str, object]) -> object:
        first = self.ways[0]
        if len(first) == 1 and first[0] in given:
            return given[cast("str", first[0])]
        return next((found for way in self.ways if (found := _at(given, way)) is not ABSENT), ABSENT)


def _at(value: object, way: Way) -> object:
    for step in way:
        try:
            value = cast("Any", value)[step]
        except (LookupError, TypeError):
            return ABSENT
    return value


@dataclass(frozen=True, slots=True)
class _Object:
    """Be the fields of an object, how one is got from it, and the form of its further ones (None: it takes none).

    A class tells by itself which object it is, a dict by what is in it: where that does not fit, an `is_exact` one is another.
    """

    fields: Sequence[_Field]
    get: Callable[[Any, str, object], object]
    further: WireForm | None
    is_exact: bool = False

    def form(self, value: object, extras: Mapping[str, object], written: object) -> object:
        """Give the form of the object."""
        given = fields_of(written)
        plain = {name: self.further(item, given.get(name, ABSENT)) for name, item in extras.items()} if self.further else {}
        for field in self.fields:
            item = self.get(value, field.name, ABSENT)
            form = item if type(item) in SIMPLE and field.is_open else field.form_of(item, given)
            if form is MISFIT and self.is_exact:
                return MISFIT
            if form is not ABSENT:
                plain[field.wire] = None if form is MISFIT else form
        return plain


# ── from a core schema ───────────────────────────────────────────────────────────────────────────────────────────────────


class Forms:
    """Make the forms of one core schema; its definitions may refer to each other."""

    def __init__(self, core: Node) -> None:
        self._definitions: dict[str, Node] = {each["ref"]: each for each in core.get("definitions", ())}
        self._any_secret = self._finds_secret(core, set())
        self._made: dict[str, WireForm] = {}
        self._makers: dict[str, Callable[[Node], WireForm]] = {
            "any": lambda _node: json_form,
            "call": self._named_tuple,
            "chain": self._chain,
            "dataclass": self._dataclass,
            "definition-ref": self._reference,
            "definitions": lambda node: self.of(node["schema"]),
            "dict": self._dict,
            "generator": self.as_written,
            "json": self._json,
            "model": self._model,
            "named-tuple": self._named_tuple,
            "nullable": self._nullable,
            "tagged-union": self._union,
            "tuple": self._tuple,
            "typed-dict": self._typed_dict,
            "union": self._union,
            **dict.fromkeys(("deque", "frozenset", "list", "set"), self._items),
            **dict.fromkeys(_OF_AUTHOR, self._of_author),
        }

    def of(self, node: Node) -> WireForm:
        """Make the form of a part of the schema."""
        node = _unwrapped(node)
        maker = self._makers.get(node["type"])
        return leaf_form if maker is None else maker(node)

    def of_arguments(self, node: Node) -> WireForm:
        """Make the form of the whole: it is known to be no other object, even if one of its fields does not fit."""
        for reference in self._definitions:
            self._defined(reference)
        node = self._resolved(node["schema"] if node["type"] == "definitions" else node)
        return self._typed_dict(node, is_exact=False) if node["type"] == "typed-dict" else self.of(node)

    # ── what an author's code may have changed ───────────────────────────────────────────────────────────────────────────

    def _of_author(self, node: Node) -> WireForm:
        if self._is_secret(node):
            return hidden_form
        inner = self.of(node["schema"]) if "schema" in node else _like_written
        return _first_that_fits([inner, self.as_written(node)])

    def default(self, node: Node) -> object:
        """Give the form of a default, by the node that holds it; MISFIT where a model could not send it itself."""
        form = self.of(node["schema"])(node["default"], ABSENT)
        return MISFIT if json.dumps(MASKED) in json.dumps(form, default=str) else form

    def as_written(self, node: Node) -> WireForm:
        """Give what the model wrote, unless there is a secret in it; few calls ask, so it is looked for then."""

        def form(value: object, written: object) -> object:
            is_shown = written is ABSENT or not self.holds_secret(node)
            return as_written(value, written) if is_shown else hidden_form(written, written)

        return form

    def holds_secret(self, part: Any) -> bool:
        """Tell whether there may be a secret in what a part of the schema reads."""
        return self._any_secret and self._finds_secret(part, set())

    def _finds_secret(self, part: Any, seen: set[str]) -> bool:
        if isinstance(part, list | tuple):
            return any(self._finds_secret(each, seen) for each in cast("Iterable[object]", part))
        if not isinstance(part, dict):
            return False
        node = cast("Node", part)
        reference = node.get("schema_ref")
        if isinstance(reference, str) and node.get("type") == "definition-ref" and reference not in seen:
            seen.add(reference)
            return self._finds_secret(self._definitions.get(reference), seen)
        return _makes_secret(node) or any(self._finds_secret(each, seen) for each in parts_of(node))

    def _is_secret(self, node: Node) -> bool:
        while not _makes_secret(node) and node["type"] in _OVER_CLASS and "schema" in node:
            node = self._resolved(node["schema"])
        return _makes_secret(node)

    # ── wrappers and unions ──────────────────────────────────────────────────────────────────────────────────────────────

    def _nullable(self, node: Node) -> WireForm:
        inner = self.of(node["schema"])
        return lambda value, written: None if value is None else inner(value, written)

    def _chain(self, node: Node) -> WireForm:
        return _first_that_fits([self.of(step) for step in reversed(node["steps"])])

    def _reference(self, node: Node) -> WireForm:
        reference = node["schema_ref"]
        return lambda value, written: self._defined(reference)(value, written)  # noqa: PLW0108 - definitions go in circles

    def _defined(self, reference: str) -> WireForm:
        made = self._made.get(reference)
        if made is None:
            made = self._made[reference] = self.of(self._definitions[reference])
        return made

    def _json(self, node: Node) -> WireForm:
        inner = self.of(node["schema"]) if "schema" in node else json_form
        return lambda value, written: inner(value, _decoded(written))

    def _union(self, node: Node) -> WireForm:
        choices = node["choices"]
        given = cast("Iterable[Any]", choices.values() if isinstance(choices, dict) else choices)
        nodes = [self._resolved(cast("Node", each[0] if isinstance(each, tuple) else each)) for each in given]
        nodes.sort(key=lambda choice: choice["type"] in _OF_AUTHOR)  # what an author made of a choice fits anything
        forms = [self.of(choice) for choice in nodes]
        by_class: dict[type, WireForm] = {}
        for choice, made in zip(nodes, forms, strict=True):
            kind = self._class_of(choice)
            if kind is not None:
                by_class.setdefault(kind, made)
        best = _best_that_fits(forms)
        return lambda value, written: by_class.get(type(value), best)(value, written)  # pyright: ignore[reportUnknownArgumentType]

    def _class_of(self, node: Node) -> type | None:
        while node["type"] in _OVER_CLASS and "schema" in node:
            node = self._resolved(node["schema"])
        return node.get("cls") if node["type"] in _CLASSES else None

    def _resolved(self, node: Node) -> Node:
        node = _unwrapped(node)
        while node["type"] == "definition-ref":
            node = _unwrapped(self._definitions[node["schema_ref"]])
        return node

    # ── containers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _dict(self, node: Node) -> WireForm:
        key, item = (self.of(node[part]) if part in node else json_form for part in ("keys_schema", "values_schema"))
        return lambda value, written: dict_form(key, item, value, written)

    def _items(self, node: Node) -> WireForm:
        schema = node.get("items_schema")
        item = json_form if schema is None else self.of(schema)
        if self.holds_secret(schema):
            return lambda value, written: each_form(item, value, written)
        return lambda value, written: items_form(item, value, written)

    def _tuple(self, node: Node) -> WireForm:
        items, variadic = [self.of(item) for item in node["items_schema"]], node.get("variadic_item_index")
        return lambda value, written: _tuple_form(items, variadic, value, written)

    def _named_tuple(self, node: Node) -> WireForm:
        fields = node["fields"] if "fields" in node else node["arguments_schema"].get("arguments_schema", ())
        items = [self.of(field["schema"]) for field in fields]
        return lambda value, written: _tuple_form(items, None, value, written)

    # ── objects ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _model(self, node: Node) -> WireForm:
        kind = node["cls"]
        if node.get("root_model"):
            root = self.of(node["schema"])
            return lambda value, written: root(value.root, written) if isinstance(value, kind) else MISFIT
        shape = self._shape(_fields_node(node), node.get("config", {}), getattr)

        def form(value: Any, written: object) -> object:
            return shape.form(value, value.__pydantic_extra__ or {}, written) if isinstance(value, kind) else MISFIT

        return form

    def _dataclass(self, node: Node) -> WireForm:
        kind, fields = node["cls"], _fields_node(node)
        shape = self._shape(fields, node.get("config", {}), getattr)
        names = {field["name"] for field in fields["fields"]}

        def form(value: Any, written: object) -> object:
            if not isinstance(value, kind):
                return MISFIT
            return shape.form(value, _without(getattr(value, "__dict__", {}), names) if shape.further else {}, written)

        return form

    def _typed_dict(self, node: Node, *, is_exact: bool = True) -> WireForm:
        shape = self._shape(node, node.get("config", {}), _get, is_exact=is_exact)
        names = node["fields"].keys()

        def form(value: Any, written: object) -> object:
            if not isinstance(value, dict):
                return MISFIT
            extras = _without(cast("dict[str, object]", value), names)
            return MISFIT if extras and shape.further is None else shape.form(cast("object", value), extras, written)

        return form

    def _shape(self, node: Node, config: Node, get: Callable[..., object], *, is_exact: bool = False) -> _Object:
        made = [self._field(name, field, config, is_exact=is_exact) for name, field in _named(node["fields"])]
        _check_names(made)
        return _Object(made, get, self._further(node, config), is_exact)

    def _further(self, node: Node, config: Node) -> WireForm | None:
        schema = node.get("extras_schema")
        if schema is None:
            behavior = config.get("extra_fields_behavior") or node.get("extra_behavior")
            return _or_nothing([json_form, as_written]) if behavior == "allow" else None
        return _or_nothing([self.of(schema), self.as_written(schema)])

    def _field(self, name: str, field: Node, config: Node, *, is_exact: bool) -> _Field:
        alias: Any = field.get("validation_alias", name) if config.get("validate_by_alias") is not False else name
        ways = [*_ways(alias), [name]] if config.get("validate_by_name") or config.get("populate_by_name") else _ways(alias)
        schema, is_gone = field["schema"], field.get("init_only")
        form, whole = self.of(schema), self.as_written(schema)
        default = form(schema["default"], ABSENT) if is_gone and "default" in schema else ABSENT
        return _Field(
            "" if is_gone else name,  # a default of the class's would pass for it
            wire=_wire_name(name, alias),
            ways=ways,
            form=form,
            as_written=_misfit if is_exact else whole,
            lost=_either(whole, default) if is_gone else _absent,
            is_open=not self.holds_secret(schema),
        )


def _tuple_form(items: list[WireForm], variadic: int | None, value: object, written: object) -> object:
    """Give the form of a tuple; the item at `variadic` (None: there is none) is there any number of times."""
    if not isinstance(value, list | tuple):
        return MISFIT
    values = cast("Sequence[object]", value)
    more = len(values) - len(items)
    if variadic is None or more < -1:
        return MISFIT if more else forms_of(items, values, written)
    return forms_of([*items[:variadic], *[items[variadic]] * (more + 1), *items[variadic + 1 :]], values, written)


def _check_names(fields: Sequence[_Field]) -> None:
    """Refuse two fields that the schema shows under one name, such as one that is read from a path and another's alias."""
    by_wire: dict[str, str] = {}
    for field in fields:
        if by_wire.setdefault(field.wire, field.name) != field.name:
            raise ValueError(f"its fields {by_wire[field.wire]!r} and {field.name!r} have one name in the schema, {field.wire!r}")


def _named(fields: Any) -> Iterable[tuple[str, Node]]:
    """Give fields with their names; of those of a dataclass all that stand in its JSON."""
    if isinstance(fields, dict):
        return cast("dict[str, Node]", fields).items()
    return ((field["name"], field) for field in cast("Iterable[Node]", fields) if field.get("init", True))


def _get(fields: dict[str, object], name: str, default: object) -> object:
    return fields.get(name, default)


def _absent(_item: object, _written: object) -> object:
    return ABSENT


def _misfit(_item: object, _written: object) -> object:
    return MISFIT


def _either(form: WireForm, default: object) -> WireForm:
    return lambda item, written: default if written is ABSENT else form(item, written)


def _ways(alias: Any) -> list[Way]:
    if isinstance(alias, str):
        return [[alias]]
    return alias if isinstance(alias[0], list) else [alias]


def _wire_name(name: str, alias: Any) -> str:
    """Give the name that the schema shows: of several ways the first that is no path, else that of the field."""
    if isinstance(alias, str):
        return alias
    single = (cast("list[str]", way) for way in alias if isinstance(way, list))
    return next((way[0] for way in single if len(way) == 1), name)


def _unwrapped(node: Node) -> Node:
    while node["type"] in _INNER:
        node = node[_INNER[node["type"]]]
    return node


def _fields_node(node: Node) -> Node:
    """Give the fields of a class, below what its author checks there."""
    while node["type"] not in _FIELDS:
        node = node["schema"]
    return node


def _without(fields: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    return {name: item for name, item in fields.items() if name not in names}


def _decoded(written: object) -> object:
    try:
        return json.loads(written) if isinstance(written, str) else ABSENT
    except ValueError:
        return ABSENT


def _makes_secret(node: Node) -> bool:
    function: Any = node.get("function", {}).get("function") if node.get("type") in _OF_AUTHOR else None
    is_pydantic = getattr(function, "__module__", None) == "pydantic.types"
    return hasattr(function, "get_secret_value") or (is_pydantic and function.__qualname__.startswith("Secret."))


def _like_written(value: object, written: object) -> object:
    form = json_form(value, written)
    kind: object = type(form)
    is_other = kind in {dict, list} and written is not ABSENT and kind is not type(written)
    return MISFIT if is_other else form


def _first_that_fits(forms: Sequence[WireForm]) -> WireForm:
    def form(value: object, written: object) -> object:
        for each in forms:
            made = each(value, written)
            if made is not MISFIT:
                return made
        return MISFIT

    return form


def _or_nothing(forms: Sequence[WireForm]) -> WireForm:
    return _first_that_fits([*forms, lambda _value, _written: None])


def _best_that_fits(forms: Sequence[WireForm]) -> WireForm:
    """Try the choices of a union: of several that fit the one that has the names which the model wrote is meant."""

    def form(value: object, written: object) -> object:
        given = fields_of(written).keys()
        best: object = MISFIT
        for each in forms:
            made = each(value, written)
            if made is not MISFIT and given <= fields_of(made).keys():
                return made
            best = made if best is MISFIT else best
        return best

    return form
