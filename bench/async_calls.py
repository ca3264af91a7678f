"""Measure one call of an async tool that does not wait: what the pipeline itself costs."""

from bench.bare import bare
from bench.gate import LIMIT_S, gate_call
from bench.report import Claim, Section, comparison
from bench.subjects import prepared_peers
from bench.timing import Contender, Options, compare, one_after_another
from bench.workloads import add

__all__ = ("run",)

_TARGET = 5
_NOTE = (
    "bare: pydantic-core `validate_json`, await of the function, pydantic-core `to_json`. callgate: validation, an authorization"
    " that allows, a time limit, the output as JSON text under its cap, a receipt. Each peer: its lowest public path for one call"
    " by name; what it makes of the answer for the model later is left out where it is a step of its own."
)


async def run(options: Options) -> Section:
    """Compare callgate and the peers with bare."""
    gate = await gate_call(add, timeout_s=LIMIT_S)
    ready, missing = await prepared_peers(add)
    contenders = [
        Contender("bare", one_after_another(bare(add))),
        Contender("callgate", one_after_another(gate), about="ToolRegistry.ainvoke"),
        *[Contender(subject.name, one_after_another(call), about=subject.path) for subject, call in ready],
    ]
    measured = await compare(contenders, options.of_processor)
    return Section(
        "Async tool that does not wait",
        (comparison("One call after another", measured, _NOTE),),
        (Claim.at_most("async tool that does not wait, full pipeline", _TARGET, measured[1].ratio),),
        tuple(missing),
    )
