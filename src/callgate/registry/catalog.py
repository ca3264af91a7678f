"""The tools of a registry by name, and what one call may run of them. Source: contract rows R2, R4, P1."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any, Final

from callgate.errors import DuplicateToolError, RegistrySealedError, ToolError, ToolNotFoundError, ToolNotOfferedError, UsageError
from callgate.registry.entry import Entry, Limits, entry_of
from callgate.tools.naming import LooseIndex, loose_index, match_loosely, nearest_names
from callgate.tools.spill import READ_OUTPUT
from callgate.tools.tool import Tool, as_tool

__all__ = ("Catalog", "Offer", "shown_name")

_KEPT_GUESTS: Final = 256
_SHOWN_NAMES: Final = 20
_SHOWN_LENGTH: Final = 128


class Offer(Mapping[str, Entry]):
    """Be the tools that a call may run, looked up by name in one step however many they are.

    `ToolRegistry.offer` makes one; pass it as `tools=` to every call of a step. A name that the catalog does not have is
    not in it.
    """

    __slots__ = ("_entries", "_loose")

    def __init__(self, entries: dict[str, Entry]) -> None:
        self._entries = entries
        self._loose: LooseIndex | None = None

    def loose(self) -> LooseIndex:
        """Give the names by their loose spelling."""
        if self._loose is None:
            self._loose = loose_index(self._entries)
        return self._loose

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: object, default: Any = None) -> Any:
        """Give the entry of that name, or `default`; a name of any type is allowed."""
        return self._entries.get(name, default) if type(name) is str else default


class Catalog:
    """Keep the entries in the order of registration, and those of tools that calls bring along."""

    __slots__ = ("_guests", "_limits", "_lock", "_loose", "_make_reader", "_reader_entry", "_sources", "entries", "sealed")

    def __init__(self, limits: Limits, make_reader: Callable[[], Tool[Any, Any]]) -> None:
        """Start empty; `make_reader` makes the built-in tool that goes with each tool which keeps its large outputs."""
        self.entries: dict[str, Entry] = {}
        self._make_reader = make_reader
        self._reader_entry: Entry | None = None
        self._sources: dict[object, Entry] = {}
        self._limits = limits
        self._lock = threading.Lock()
        self._guests: dict[object, Entry] = {}
        self.sealed = False
        self._loose: tuple[dict[str, Entry], LooseIndex] | None = None

    def seal(self) -> None:
        """Take no more tools; a registration that is under way ends before this or is refused."""
        with self._lock:
            self.sealed = True

    def add(self, tools: Iterable[object]) -> None:
        """Register all of `tools` or none.

        Raises:
            ToolDefinitionError: when one of them cannot work.
            DuplicateToolError: when a name is taken, in the catalog or twice among `tools`.
            RegistrySealedError: the catalog is sealed.
        """
        things = listed(tools, "tools")
        if self.sealed:
            raise RegistrySealedError(as_tool(things[0]).name if things else "(none)")
        fresh: dict[str, Entry] = {}
        sources: dict[object, Entry] = {}
        for thing in things:
            entry = sources[_key(thing)] = entry_of(as_tool(thing), self._limits)
            if fresh.setdefault(entry.name, entry) is not entry:
                raise DuplicateToolError(entry.name)
        with self._lock:
            self._enter(fresh, sources)

    def _enter(self, fresh: dict[str, Entry], sources: dict[object, Entry]) -> None:
        if self.sealed:
            raise RegistrySealedError(next(iter(fresh), "(none)"))
        taken = fresh.keys() & self.entries.keys()
        if taken:
            raise DuplicateToolError(min(taken))
        if any(entry.on_oversize == "spill" for entry in fresh.values()) and READ_OUTPUT not in self.entries:
            fresh.setdefault(READ_OUTPUT, self._reader())
        # A new dict, not a changed one: whoever walks over the old one in another thread is not disturbed.
        self.entries = {**self.entries, **fresh}
        self._sources = {**self._sources, **sources}
        self._loose = None

    def offer(self, tools: Iterable[object]) -> Offer:
        """Give what a call may run that was offered `tools`: names of the catalog, its tools, or additional tools.

        Raises:
            ToolDefinitionError: when an additional tool cannot work.
            DuplicateToolError: when an additional tool has the name of another one that it is not.
        """
        if isinstance(tools, Offer):
            return tools
        offered: dict[str, Entry] = {}
        for item in listed(tools, "tools or of their names"):
            entry = self._named(item) if isinstance(item, str) else self._entry(item)
            if entry is None:
                continue
            if offered.setdefault(entry.name, entry) is not entry:
                raise DuplicateToolError(entry.name, "two different tools of that name are offered to one call")
            if entry.on_oversize == "spill":
                offered.setdefault(READ_OUTPUT, self._reader())
        return Offer(offered)

    def _named(self, name: str) -> Entry | None:
        return self.entries.get(name) or (self._reader() if name == READ_OUTPUT else None)

    def _reader(self) -> Entry:
        if self._reader_entry is None:
            self._reader_entry = entry_of(self._make_reader(), self._limits)
        return self._reader_entry

    def _entry(self, thing: object) -> Entry:
        known = self._sources.get(_key(thing))
        if known is not None:
            return known
        guest = self._guests.get(_key(thing))
        if guest is not None and guest.name not in self.entries:
            return guest
        tool = as_tool(thing)
        registered = self.entries.get(tool.name)
        if registered is not None and registered.tool is tool:
            return registered
        if registered is not None:
            raise DuplicateToolError(tool.name, "the call brings a tool with the name of a registered one")
        with self._lock:
            guest = self._guests.setdefault(_key(thing), entry_of(tool, self._limits))
            self._forget_guests()
            return guest

    def _forget_guests(self) -> None:
        """Keep the entries of the newest additional tools, and of older ones only while something of theirs runs."""
        surplus = len(self._guests) - _KEPT_GUESTS
        if surplus > 0:
            idle = [key for key, entry in self._guests.items() if not entry.slots.held]
            for key in idle[:surplus]:
                del self._guests[key]

    def all_entries(self) -> tuple[Entry, ...]:
        """Give the entries of the catalog and of the tools that calls have brought along and that still exist."""
        with self._lock:
            return (*self.entries.values(), *self._guests.values())

    def find_loosely(self, name: object, offer: Offer | None) -> Entry | None:
        """Find the one tool that an oddly spelt name can only mean (`functions.x`, `x()`, other case or separator)."""
        if type(name) is not str:
            return None
        if offer is not None:
            found = match_loosely(name, offer.loose())
            return None if found is None else offer[found]
        entries, index = self.entries, self._loose
        if index is None or index[0] is not entries:
            index = self._loose = entries, loose_index(entries)
        found = match_loosely(name, index[1])
        return None if found is None else entries[found]

    def refusal(self, name: object, offer: Offer | None) -> ToolError:
        """Make the error for a name that the call cannot run: 404 without an offer, 403 with one (contract row P1)."""
        known = tuple(self.entries if offer is None else offer)
        kind = ToolNotFoundError if offer is None else ToolNotOfferedError
        if type(name) is not str:
            return kind(self._shown_thing(name, known), (), known[:_SHOWN_NAMES])
        return kind(shown_name(name), nearest_names(name[:_SHOWN_LENGTH], known), known[:_SHOWN_NAMES])

    def _shown_thing(self, thing: object, known: Iterable[str]) -> str:
        """Show what was passed for a name; of a tool that the call could have run, say the name."""
        entry = self._sources.get(_key(thing)) if type(thing) in {FunctionType, Tool} else None
        if entry is None or entry.name not in known:
            return shown_name(thing)
        return f"({type(thing).__name__}, not a name: pass its name, {entry.name!r})"


def _key(thing: object) -> object:
    """Give what tells that the same thing is offered which was registered; a bound method is a new object each time."""
    return (id(thing.__self__), thing.__func__) if isinstance(thing, MethodType) else _Same(thing)


class _Same:
    """Compare by identity, and keep the thing alive so that its identity is not given to another."""

    __slots__ = ("thing",)

    def __init__(self, thing: object) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.thing is self.thing

    def __hash__(self) -> int:
        return id(self.thing)


def listed(tools: Iterable[object], accepted: str) -> list[object]:
    """Give what a host lists as tools; `accepted` says of what the list may be.

    Raises:
        UsageError: it is one thing and no list.
    """
    if isinstance(tools, str):
        advice = "pass [name]" if "names" in accepted else "names are accepted where a call is offered tools"
        raise UsageError(f"tools must be a list of {accepted}, not a text: {advice}")
    if not hasattr(tools, "__iter__"):
        raise UsageError(f"tools must be a list of {accepted}, not {type(tools).__name__}: pass [tool]")
    return list(tools)


def shown_name(name: object) -> str:
    """Give a name as a model sent it in a form that is safe to show and to store: short, and text that UTF-8 can hold."""
    if type(name) is not str:
        return f"({type(name).__name__}, not a name)"
    short = name if len(name) <= _SHOWN_LENGTH else name[:_SHOWN_LENGTH] + "…"
    return short.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")  # a database's text cannot hold a NUL
