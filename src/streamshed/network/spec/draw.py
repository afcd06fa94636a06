"""A network as text for a terminal, or as a Mermaid flowchart for a page."""

from __future__ import annotations

from streamshed.network.expressions.ranges import number
from streamshed.network.graph import (
    Aggregate,
    Box,
    CountWindow,
    Filter,
    Join,
    Map,
    Network,
    Node,
    Output,
    Source,
    TopK,
    Udf,
    inputs,
)


def describe(node: Node) -> str:
    """What a node does, in one line."""
    if isinstance(node, Source):
        return f"source, {number(node.rate)} rows/s"
    if isinstance(node, Output):
        said = [what for what in ("loss", "latency", "value") if getattr(node.qos, what) is not None]
        return "output" + (f", QoS: {', '.join(said)}" if said else "")
    return f"{node.op} {_details(node)}".rstrip()


def _details(box: Box) -> str:
    if isinstance(box, Filter):
        return str(box.where)
    if isinstance(box, Map):
        return ", ".join(f"{name} = {expression}" for name, expression in box.select.items())
    if isinstance(box, Join):
        return f"on {', '.join(box.on)} within {number(box.within)} s"
    if isinstance(box, Aggregate | CountWindow):
        computed = ", ".join(f"{name} = {expression}" for name, expression in box.compute.items())
        by = f" by {', '.join(box.by)}" if box.by else ""
        over = f"{number(box.window)} s" if isinstance(box, Aggregate) else f"{box.rows} rows"
        return f"{computed} over {over}{by}"
    if isinstance(box, TopK):
        by = f" by {', '.join(box.by)}" if box.by else ""
        return f"{box.k} by {box.field} over {number(box.window)} s{by}"
    if isinstance(box, Udf):
        return f"{box.adds.name} = {box.function}({', '.join(box.reads)})"
    return ""


def text(network: Network) -> str:
    """Every source with what lies below it, as a tree; a node met before is only named again.

    >>> from streamshed.network.builder import Builder
    >>> builder = Builder("n").source("s", "x INT", rate=5).filter("f", "s", "x > 1").output("o", "f")
    >>> print(text(builder.build()))
    n
    └─ s  (source, 5 rows/s)
       └─ f  (filter x > 1)
          └─ o  (output)
    """
    lines = [network.name]
    seen: set[str] = set()

    def branch(name: str, indent: str, last: bool) -> None:
        first = name not in seen
        seen.add(name)
        about = f"  ({describe(network.nodes[name])})" if first else "  (see above)"
        lines.append(f"{indent}{'└─' if last else '├─'} {name}{about}")
        if first:
            below = network.consumers[name]
            for index, after in enumerate(below):
                branch(after, indent + ("   " if last else "│  "), index == len(below) - 1)

    for index, source in enumerate(network.sources):
        branch(source.name, "", index == len(network.sources) - 1)
    return "\n".join(lines)


def mermaid(network: Network) -> str:
    """A Mermaid flowchart.

    >>> from streamshed.network.builder import Builder
    >>> print(mermaid(Builder("n").source("s", "x INT").filter("f", "s", "x > 1").output("o", "f").build()))
    flowchart LR
      n0(["s<br/>source, 1 rows/s"])
      n1["f<br/>filter x #gt; 1"]
      n2(["o<br/>output"])
      n0 --> n1
      n1 --> n2
    """
    ids = {name: f"n{index}" for index, name in enumerate(network.nodes)}
    lines = ["flowchart LR"]
    for name, node in network.nodes.items():
        label = f"{_escape(name)}<br/>{_escape(describe(node))}"
        lines.append(f'  {ids[name]}["{label}"]' if isinstance(node, Box) else f'  {ids[name]}(["{label}"])')
    for node in network.heads:
        lines.extend(f"  {ids[name]} --> {ids[node.name]}" for name in inputs(node))
    return "\n".join(lines)


def _escape(label: str) -> str:
    for character, name in (("&", "#amp;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        label = label.replace(character, name)
    return label
