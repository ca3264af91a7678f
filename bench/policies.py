"""Measure what a decision costs, with few and with many rules."""

import time
from time import perf_counter

from bench.report import Section, Table, duration
from bench.timing import Options
from bench.workloads import add
from callgate import Caller, Tool
from callgate.policy import Condition, OfferRequest, PolicyCall, Rule, RulePolicy, Verdict

__all__ = ("run",)

_NOTE = (
    "Rules are found once for each tool; a decision then looks at those about its tool. `about` is how many these are. Offers are"
    " made for a step, not for a call."
)


async def run(options: Options) -> Section:
    """Measure `decide` with 1 to 1,000 rules, and `resolve` with 10,000 tools."""
    repeats = 200 if options.quick else 20_000
    rows = [_decide(rules, about, repeats) for rules, about in ((1, 1), (1_000, 1), (1_000, 10), (1_000, 1_000))]
    tables = [Table("One decision", ("rules", "about", "one call"), tuple(rows), _NOTE)]
    tools = [Tool.of(add, name=f"tool_{number}") for number in range(100 if options.quick else 10_000)]
    policy, request = RulePolicy(_rules(1_000, 1)), OfferRequest(caller=Caller("alice"), now=0.0)
    begun = perf_counter()
    policy.resolve(tools, request)
    first, begun = perf_counter() - begun, perf_counter()
    policy.resolve(tools, request)
    row = (f"{len(tools):,}", duration(first), duration(perf_counter() - begun))
    tables.append(Table("One offer, with 1,000 rules", ("tools", "the first time", "after that"), (row,)))
    return Section("Policies", tuple(tables))


def _rules(count: int, about: int) -> list[Rule]:
    condition = Condition("/a", ">", 1_000_000)
    allow = Rule(id="allow", decision=Verdict.ALLOW, tools=("add",))
    asks = [Rule(id=f"ask{n}", decision=Verdict.ASK, tools=("add",), when=(condition,)) for n in range(about - 1)]
    others = [Rule(id=f"other{n}", decision=Verdict.DENY, tools=(f"other_{n}_*",)) for n in range(count - about)]
    return [allow, *asks, *others]


def _decide(count: int, about: int, repeats: int) -> tuple[str, str, str]:
    policy, tool, caller = RulePolicy(_rules(count, about)), Tool.of(add), Caller("alice")
    repeats = max(10, repeats // about)
    policy.decide(PolicyCall(tool, {"a": 1, "b": 2}, caller, time.time()))
    begun = perf_counter()
    for _ in range(repeats):
        policy.decide(PolicyCall(tool, {"a": 1, "b": 2}, caller, 0.0))
    return f"{count:,}", f"{about:,}", duration((perf_counter() - begun) / repeats)
