"""Draw a workflow: as Mermaid text, and as a tree for the terminal, with the way of a run marked."""

from collections.abc import Sequence

from callgate.workflow.definition import Node, Route, Workflow

__all__ = ("mermaid", "tree")


def mermaid(workflow: Workflow, path: Sequence[str] = ()) -> str:
    """Write a workflow as a Mermaid flowchart; the nodes of `path` are marked."""
    names = {name: f"n{number}" for number, name in enumerate(workflow.nodes)}
    lines = ["flowchart TD", f"    start([start]) --> {names[workflow.start.id]}"]
    delivered: dict[str, str] = {}
    for name, node in workflow.nodes.items():
        lines.append(f'    {names[name]}["{_safe(name)}"]')
        for route in node.routes:
            label = "" if route.when is None else f'|"{_safe(_condition(route.when))}"|'
            if route.field is not None:
                target = delivered.setdefault(route.field, f"d{len(delivered)}")
                lines.append(f'    {names[name]} -->{label} {target}(["{_safe(route.field)}"])')
            else:
                lines.append(f"    {names[name]} -->{label} {names[str(route.target)]}")
    passed = ",".join(names[name] for name in dict.fromkeys(path) if name in names)
    if passed:
        lines += ["    classDef passed stroke-width:4px", f"    class {passed} passed"]
    return "\n".join(lines)


def tree(workflow: Workflow, path: Sequence[str] = ()) -> str:
    """Write a workflow as an indented tree; a node that was drawn before is only named, those of `path` have a star."""
    lines = [f"{workflow.id}"]
    drawn: set[str] = set()
    passed = set(path)
    waiting: list[str | tuple[Node, int, str]] = [(workflow.start, 0, "-> ")]
    while waiting:  # no recursion: a workflow may be longer than Python's stack is deep
        each = waiting.pop()
        if isinstance(each, str):
            lines.append(each)
            continue
        node, depth, label = each
        star = " *" if node.id in passed else ""
        again = node.id in drawn
        said = " (above)" if again else f": {node.description}"
        lines.append(f"{'    ' * depth}{label}{node.id}{star}{said}")
        if not again:
            drawn.add(node.id)
            waiting += reversed([_branch(workflow, route, depth + 1) for route in node.routes])
    return "\n".join(lines)


def _branch(workflow: Workflow, route: Route, depth: int) -> str | tuple[Node, int, str]:
    when = "" if route.when is None else f"[{_condition(route.when)}] "
    if route.field is not None:
        return f"{'    ' * depth}{when}=> {route.field}"
    return workflow.nodes[str(route.target)], depth, f"{when}-> "


def _condition(when: object) -> str:
    return str(getattr(when, "__name__", "a condition")).replace("<lambda>", "a condition").replace("_", " ")


def _safe(text: str) -> str:
    return text.replace('"', "'").replace("\n", " ")
