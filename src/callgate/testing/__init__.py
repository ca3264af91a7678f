"""A kit for the tests of programs that use callgate: a gate in one line, a clock, a model by script, suites for own parts."""

from callgate.testing.clock import ManualClock
from callgate.testing.gates import gate_for
from callgate.testing.models import Says, Turn, calls, scripted_model
from callgate.testing.policies import check_policy
from callgate.testing.stores import check_store

__all__ = ("ManualClock", "Says", "Turn", "calls", "check_policy", "check_store", "gate_for", "scripted_model")
