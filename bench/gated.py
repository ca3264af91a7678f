"""Measure what the gate adds to a call of the registry: policy, journal in memory, outcome."""

from functools import partial

from bench.gate import registry_of
from bench.report import Claim, Section, comparison
from bench.timing import Contender, Options, compare, one_after_another
from bench.workloads import ARGUMENTS, add
from callgate import Caller, Gate, ToolCall
from callgate.policy import AllowAll, Rule, RulePolicy, Verdict

__all__ = ("run",)

_TARGET = 1.3
_NOTE = (
    "Everything is kept in memory. A call in a run has an id of its own each time, and its result is kept as it would be for a"
    " resume."
)


async def run(options: Options) -> Section:
    """Measure a call through the registry, through a gate, with rules, and in a run."""
    registry, caller, call = registry_of([add]), Caller("alice"), ToolCall("add", ARGUMENTS)
    open_gate = Gate(registry, policy=AllowAll())
    ruled = Gate(registry, policy=RulePolicy([Rule(id="all", decision=Verdict.ALLOW, tools=("add",))]))
    in_run = Gate(registry, policy=AllowAll())
    in_run.begin_run("r")
    numbers = iter(range(1 << 60))

    async def call_in_run() -> object:
        return await in_run.call(ToolCall("add", ARGUMENTS, str(next(numbers))), caller=caller, run_id="r")

    contenders = [
        Contender("registry", one_after_another(partial(registry.ainvoke, "add", ARGUMENTS))),
        Contender("gate, AllowAll", one_after_another(partial(open_gate.call, call, caller=caller))),
        Contender("gate, one rule", one_after_another(partial(ruled.call, call, caller=caller))),
        Contender("gate, in a run", one_after_another(call_in_run)),
    ]
    measured = await compare(contenders, options.of_processor)
    claim = Claim.at_most("a gate with ALLOW and a memory store / the registry", _TARGET, measured[1].ratio)
    return Section("The gate around a call", (comparison("One async call that does not wait", measured, _NOTE),), (claim,))
