"""A stream of graphs through a two-layer GCN or GIN: sparse and dense products, planned as stages on groups of devices.

Run it with: python examples/graph_stream.py [NODES] [ITEMS] [gcn|gin] [cora|pubmed|arxiv|reddit] [--timeline FILE.svg]
Plan it for a machine that you do not have, at full size: coexec plan pipeline examples/graph_stream.py:reddit --platform dype-pcie4
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from streaming import arguments, shown

import coexec as cx

EXPONENT = 2.5  # how fast the degrees of citation networks fall


class Kind(NamedTuple):
    """A public data set: nodes, edges in each direction, features, classes, usual hidden width; how its degrees spread."""

    nodes: int
    edges: int
    features: int
    classes: int
    hidden: int
    degrees: str


KINDS = {
    "cora": Kind(2_708, 10_556, 1_433, 7, 16, "power law"),
    "pubmed": Kind(19_717, 88_648, 500, 3, 16, "power law"),
    "arxiv": Kind(169_343, 1_166_243, 128, 40, 128, "power law"),
    "reddit": Kind(232_965, 114_615_892, 602, 41, 128, "log-normal"),
}


def gcn_layers(item, w1, w2):
    graph, x = item
    return graph @ (cx.relu(graph @ (x @ w1)) @ w2)


def gin_layers(item, w1, w2):
    graph, x = item
    hidden = cx.relu((graph @ x) @ w1)
    return (graph @ hidden) @ w2


def with_numpy(network, item, w1, w2):
    graph, x = item
    if network == "gcn":
        return graph @ (np.maximum(graph @ (x @ w1), 0) @ w2)
    return (graph @ np.maximum((graph @ x) @ w1, 0)) @ w2


def random_graph(nodes, kind, random):
    """Return a graph with the mean degree of its kind, and degrees spread alike; one edge leads from each node to itself."""
    heavy = kind.degrees == "power law"
    spread = random.pareto(EXPONENT - 1, nodes) + 1 if heavy else random.lognormal(0.0, 1.0, nodes)
    mean = min(kind.edges / kind.nodes, nodes / 4)
    degrees = np.minimum(nodes - 1, spread * mean / spread.mean()).astype(int) + 1
    ends = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
    columns = random.integers(0, nodes, ends[-1], dtype=np.int32)
    columns[ends[:-1]] = np.arange(nodes)
    return sp.csr_array((np.full(ends[-1], 1 / mean, np.float32), columns, ends), shape=(nodes, nodes))


def start(nodes, count, kind):
    """Return items and weights."""
    random = np.random.default_rng(0)
    items = [
        (random_graph(nodes, kind, random), random.standard_normal((nodes, kind.features), np.float32))
        for _ in range(count)
    ]
    shapes = {"w1": (kind.features, kind.hidden), "w2": (kind.hidden, kind.classes)}
    return items, {name: random.standard_normal(shape, np.float32) / 8 for name, shape in shapes.items()}


def whole(network, name):
    """Return the pipeline and a sample of full size, for `coexec plan pipeline`."""
    items, weights = start(KINDS[name].nodes, 1, KINDS[name])
    return cx.Pipeline({"gcn": gcn_layers, "gin": gin_layers}[network], **weights), items[0]


gcn, gin = partial(whole, "gcn", "arxiv"), partial(whole, "gin", "arxiv")
cora, pubmed, arxiv, reddit = (partial(whole, "gcn", name) for name in KINDS)


def main(nodes=4_000, count=24, network="gcn", name="arxiv", timeline=""):
    items, weights = start(nodes, count, KINDS[name])
    function = {"gcn": gcn_layers, "gin": gin_layers}[network]
    shown(
        f"{network}, {nodes} nodes like {name}", function, weights, items,
        lambda item: with_numpy(network, item, **weights), timeline, tolerance=1e-2,
    )  # fmt: skip


if __name__ == "__main__":
    names = ("arxiv", *[name for name in KINDS if name != "arxiv"])
    main(**arguments(__doc__, nodes=4_000, count=24, network=("gcn", "gin"), name=names))
