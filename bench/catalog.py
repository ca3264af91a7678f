"""Measure what the size of the catalog costs: a call, an unknown name, a registration."""

from collections.abc import Sequence
from functools import partial
from statistics import median
from time import thread_time

from bench.gate import CALLGATE, LIMIT_S, registry_of
from bench.report import Claim, Section, Table, duration, ratio
from bench.subjects import Subject, peers
from bench.timing import Call, Contender, Options, compare, one_after_another
from bench.workloads import ARGUMENTS, Function, numbered
from callgate import ToolNotFoundError

__all__ = ("run",)

_TARGET = 1.1
_SIZES = (10, 100, 1_000, 10_000)
_QUICK_SIZES = (10, 100, 1_000)
_PEER_SIZES = (10, 1_000)
_UNKNOWN_NAMES = 20
_CALLGATE_NOTE = (
    "The tool called is the last one registered. Registration is everything from the plain function to the sealed registry, for"
    " one tool. An unknown name costs the search for the names nearest to it."
)


async def run(options: Options) -> Section:
    """Measure callgate at each size, and the peers at a small and a large one."""
    sizes = _QUICK_SIZES if options.quick else _SIZES
    table, growth = await _callgate(sizes, options)
    peers_table, missing = await _peers(options)
    claim = Claim.at_most(f"one call with {sizes[-1]:,} tools registered / with {sizes[0]}", _TARGET, growth)
    return Section("Catalog size", (table, peers_table), (claim,), tuple(missing))


async def _callgate(sizes: Sequence[int], options: Options) -> tuple[Table, float]:
    registered_s: list[float] = []
    unknown_s: list[float] = []
    contenders: list[Contender] = []
    for size in sizes:
        functions = numbered(size)
        begun = thread_time()
        registry = registry_of(functions, timeout_s=LIMIT_S)
        registered_s.append((thread_time() - begun) / size)
        unknown_s.append(await _unknown_name_s(partial(registry.ainvoke, "ad_00007", ARGUMENTS)))
        contenders.append(Contender(f"{size:,}", one_after_another(partial(registry.ainvoke, functions[-1].__name__, ARGUMENTS))))
    measured = await compare(contenders, options.of_processor)
    rows = tuple(
        (each.contender.name, duration(each.call_s), ratio(each.ratio), duration(unknown), duration(registered))
        for each, unknown, registered in zip(measured, unknown_s, registered_s, strict=True)
    )
    columns = ("tools", "one call", f"to {sizes[0]} tools", "unknown name", "registration of one")
    return Table("callgate", columns, rows, _CALLGATE_NOTE), measured[-1].ratio


async def _unknown_name_s(call: Call) -> float:
    times: list[float] = []
    for _ in range(_UNKNOWN_NAMES):
        begun = thread_time()
        try:
            await call()
        except ToolNotFoundError:
            times.append(thread_time() - begun)
        else:
            raise AssertionError("a name that no tool has was answered")
    return median(times)


async def _peers(options: Options) -> tuple[Table, list[str]]:
    found, missing = peers()
    rows: list[tuple[str, ...]] = []
    for subject in (CALLGATE, *found):
        try:
            rows.append(await _growth(subject, options))
        except Exception as error:  # a peer that fails is listed with its reason and keeps no other from running
            missing.append(f"{subject.name} ({type(error).__name__}: {error})")
    small, large = _PEER_SIZES
    columns = ("who", f"one call, {small} tools", f"{large:,} to {small} tools", "registration of one")
    return Table("Beside the peers", columns, tuple(rows)), missing


async def _growth(subject: Subject, options: Options) -> tuple[str, ...]:
    contenders: list[Contender] = []
    registered_s = 0.0
    for size in _PEER_SIZES:
        functions: list[Function] = numbered(size)
        begun = thread_time()
        prepared = await subject.prepare(functions, None)
        registered_s = (thread_time() - begun) / size
        contenders.append(Contender(str(size), one_after_another(partial(prepared.call, functions[-1].__name__, ARGUMENTS))))
    small, large = await compare(contenders, options.of_processor)
    return (subject.name, duration(small.call_s), ratio(large.ratio), duration(registered_s))
