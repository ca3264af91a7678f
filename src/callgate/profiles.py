"""AI profiles: a model, its instructions, its tools and limits under one name. Source: contract row A6."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, cast

from callgate.errors import NotFoundError, UsageError
from callgate.policy.cedar import CedarPolicy
from callgate.policy.globs import matches
from callgate.policy.rule_policy import RulePolicy
from callgate.store.protocol import Store
from callgate.tools.tool import Tool
from callgate.values import check_limit

__all__ = ("Limits", "Profile", "ProfileStore", "load_policy")

_NO_SETTINGS: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bound a run; None is no bound.

    `steps` are requests to the model, `time_s` seconds from its start on, `tokens` of input and output together, `cost` in US
    dollars where the model's price is known.

    Raises:
        UsageError: a value is out of range.
    """

    steps: int | None = 20
    time_s: float | None = None
    tokens: int | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        check_limit("steps", self.steps, whole=True)
        check_limit("time_s", self.time_s)
        check_limit("tokens", self.tokens, whole=True)
        check_limit("cost", self.cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Be one profile. `tools` are names or whole-name globs (None: all that the policy offers).

    `model` is a name such as "openai:gpt-5" (None: the client's own). `policy` is a file of rules, or a `.cedar` file, that
    narrows the gate's own for these runs: of both, the stricter decision holds. `settings` go to the model as they are.

    Raises:
        UsageError: a value is of another type.
    """

    name: str
    model: str | None = None
    instructions: str | None = None
    tools: tuple[str, ...] | None = None
    policy: str | None = None
    limits: Limits = field(default_factory=Limits)
    settings: Mapping[str, Any] = field(default_factory=lambda: _NO_SETTINGS)

    def __post_init__(self) -> None:
        _check(self)
        if self.tools is not None:
            object.__setattr__(self, "tools", tuple(self.tools))

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Profile":
        """Make a profile of its facts, as in TOML or JSON.

        Raises:
            UsageError: a key is unknown, or a value cannot be.
        """
        _check_keys("a profile", facts, cls)
        given = dict(facts)
        if "name" not in given:
            raise UsageError("a profile needs a name")
        limits: object = given.get("limits", {})
        if not isinstance(limits, Mapping):
            raise UsageError(f"limits must be a table, not {type(limits).__name__}")
        _check_keys("limits", cast("Mapping[str, Any]", limits), Limits)
        given["limits"] = Limits(**cast("Mapping[str, Any]", limits))
        return cls(**given)

    def facts(self) -> dict[str, Any]:
        """Give the facts of which `of` makes the same profile."""
        return {
            "name": self.name,
            "model": self.model,
            "instructions": self.instructions,
            "tools": None if self.tools is None else list(self.tools),
            "policy": self.policy,
            "limits": asdict(self.limits),
            "settings": dict(self.settings),
        }

    def chosen(self, tools: Sequence[Tool[Any, Any]]) -> list[Tool[Any, Any]]:
        """Give those of some tools that the profile names."""
        wanted = self.tools
        return [tool for tool in tools if wanted is None or any(matches(pattern, tool.name) for pattern in wanted)]


def _read(name: str, kept: str) -> Profile:
    try:
        return _named(name, Profile.of(_table(json.loads(kept))))
    except (ValueError, RecursionError, UsageError) as error:
        said = error.user_message if isinstance(error, UsageError) else "it is no JSON"
        raise UsageError(f"the profile {name!r} that is kept is damaged: {said}") from error


def _table(facts: object) -> Mapping[str, Any]:
    if not isinstance(facts, Mapping):
        raise UsageError(f"it is no table but {type(facts).__name__}")
    return cast("Mapping[str, Any]", facts)


def _named(name: str, profile: Profile) -> Profile:
    if profile.name != name:
        raise UsageError(f"the profile kept as {name!r} says that it is {profile.name!r}: give it one name")
    return profile


def load_policy(file: str) -> RulePolicy | CedarPolicy:
    """Load a policy from a file: Cedar's language where its name ends with `.cedar`, TOML rules otherwise.

    Raises:
        PolicyError: it cannot be read, or says what cannot be.
        UsageError: it is Cedar's, and the extra `cedar` is not installed.
    """
    return CedarPolicy.load(file) if file.endswith(".cedar") else RulePolicy.load(file)


def _check(profile: Profile) -> None:
    name = cast("object", profile.name)
    if not isinstance(name, str) or not name:
        raise UsageError(f"a profile's name must be a text that is not empty, not {name!r}")
    for key in ("model", "instructions", "policy"):
        value = getattr(profile, key)
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{key} of profile {name!r} must be a text, not {type(value).__name__}")
    tools: object = profile.tools
    listed = isinstance(tools, list | tuple) and all(isinstance(each, str) for each in cast("list[object]", tools))
    if tools is not None and not listed:
        raise UsageError(f"tools of profile {name!r} must be a list of names or globs, not {tools!r}")
    if not isinstance(cast("object", profile.limits), Limits):
        raise UsageError(f"limits of profile {name!r} must be Limits(…), not {type(profile.limits).__name__}")
    settings = cast("object", profile.settings)
    if not isinstance(settings, Mapping):
        raise UsageError(f"settings of profile {name!r} must be a table, not {type(settings).__name__}")


def _check_keys(what: str, facts: Mapping[str, Any], kind: type) -> None:
    known = [each.name for each in fields(kind)]
    for key in facts:
        if key not in known:
            near = get_close_matches(key, known, 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(known))}"
            raise UsageError(f"unknown key {key!r} in {what}{hint}")


class _Catalog(Protocol):
    def list(self) -> list[Tool[Any, Any]]: ...


class ProfileStore:
    """Keep profiles by name: in a store, and read-only in the TOML files of a folder, one `[profile]`-less table a file.

    A profile that names a tool which the registry does not have is refused, when it is put and when it is read.
    """

    def __init__(self, registry: _Catalog, *, store: Store | None = None, folder: str | Path | None = None) -> None:
        self._registry = registry
        self._store = store
        self._folder = None if folder is None else Path(folder)

    async def put(self, profile: Profile) -> None:
        """Keep a profile, in the place of one of that name.

        Raises:
            UsageError: it names a tool that there is not, holds what JSON does not, or there is no store to put it into;
                nothing was kept.
        """
        self._check_tools(profile)
        if self._store is None:
            raise UsageError("this ProfileStore only reads: make it with store=…")
        try:
            kept = json.dumps(profile.facts(), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"profile {profile.name!r} cannot be kept: its settings hold what JSON does not") from error
        await self._store.put_profile(profile.name, kept)

    async def get(self, name: str) -> Profile:
        """Give a profile; the store's goes before a file's.

        Raises:
            NotFoundError: there is none of that name.
            UsageError: it names a tool that there is not, or cannot be read.
        """
        kept = None if self._store is None else await self._store.profile(name)
        profile = self._from_file(name) if kept is None else _read(name, kept)
        if profile is None:
            known = ", ".join(await self.names()) or "none"
            raise NotFoundError("profile", name, f"known are {known}")
        self._check_tools(profile)
        return profile

    async def names(self) -> list[str]:
        """Give the names of all profiles, sorted."""
        kept = {} if self._store is None else await self._store.profiles()
        files = [] if self._folder is None else [file.stem for file in self._folder.glob("*.toml")]
        return sorted({*kept, *files})

    async def delete(self, name: str) -> None:
        """Drop a profile of the store.

        Raises:
            NotFoundError: the store has none of that name.
        """
        if self._store is None or not await self._store.delete_profile(name):
            raise NotFoundError("profile", name)

    def _from_file(self, name: str) -> Profile | None:
        if self._folder is None or Path(name).name != name:
            return None
        file = self._folder / f"{name}.toml"
        if not file.is_file():
            return None
        try:
            facts = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"{file.name} is no TOML: {error}") from error
        except OSError as error:
            raise UsageError(f"{file.name} cannot be read: {type(error).__name__}") from error
        return _named(name, Profile.of({"name": name, **facts}))

    def _check_tools(self, profile: Profile) -> None:
        names = [tool.name for tool in self._registry.list()]
        for pattern in profile.tools or ():
            if not any(matches(pattern, name) for name in names):
                near = get_close_matches(pattern, names, 1, 0.6)
                hint = f"; the nearest is {near[0]!r}" if near else ""
                raise UsageError(f"profile {profile.name!r} names the tool {pattern!r}, which the registry does not have{hint}")
