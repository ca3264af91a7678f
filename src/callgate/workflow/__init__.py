"""Workflows: nodes, routes and rounds over one state, with tools bound once. Every tool call goes through the gate."""

from callgate.workflow.agents import agent_runner
from callgate.workflow.definition import Node, Route, Workflow, define_workflow, node, route
from callgate.workflow.drawing import mermaid, tree
from callgate.workflow.engine import Engine, RunKeywords, WorkflowLimits
from callgate.workflow.events import Delivered, NodeFinished, NodeStarted, Paused, RoundStarted, ToolCalled, WorkflowEvent
from callgate.workflow.runtime import NodeAgent, NodeTools, Runtime

__all__ = (
    "Delivered",
    "Engine",
    "Node",
    "NodeAgent",
    "NodeFinished",
    "NodeStarted",
    "NodeTools",
    "Paused",
    "RoundStarted",
    "Route",
    "RunKeywords",
    "Runtime",
    "ToolCalled",
    "Workflow",
    "WorkflowEvent",
    "WorkflowLimits",
    "agent_runner",
    "define_workflow",
    "mermaid",
    "node",
    "route",
    "tree",
)
