"""A stream of graphs through a two-layer GCN or GIN: sparse and dense products, planned as stages on groups of devices.

Run it with: python examples/graph_stream.py [NODES] [ITEMS] [gcn|gin] [--timeline FILE.svg]
Plan it for a machine that you do not have: coexec plan pipeline examples/graph_stream.py:gcn --platform dype-pcie4
"""

import numpy as np
import scipy.sparse as sp
from streaming import arguments, shown

import coexec as cx

FEATURES, HIDDEN, CLASSES = 128, 32, 8
DEGREE, EXPONENT = 7, 2.5  # mean degree, and how fast degrees fall: a citation network like ogbn-arxiv, scaled down


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


def random_graph(nodes, random):
    """Return a graph whose degrees follow a power law, with one edge from each node to itself."""
    degrees = np.minimum(
        nodes - 1, (random.pareto(EXPONENT - 1, nodes) + 1) * DEGREE * (EXPONENT - 2) / (EXPONENT - 1)
    ).astype(int)
    rows = np.repeat(np.arange(nodes), degrees)
    columns = random.integers(0, nodes, len(rows))
    graph = sp.coo_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(nodes, nodes)).tocsr()
    return sp.csr_array(graph + sp.eye_array(nodes, dtype=np.float32, format="csr"))


def start(nodes, count):
    """Return items and weights."""
    random = np.random.default_rng(0)
    items = [
        (random_graph(nodes, random), random.standard_normal((nodes, FEATURES)).astype(np.float32))
        for _ in range(count)
    ]
    weights = [random.standard_normal(shape).astype(np.float32) for shape in ((FEATURES, HIDDEN), (HIDDEN, CLASSES))]
    return items, dict(zip(("w1", "w2"), weights, strict=True))


def gcn(nodes=20_000):
    """Return the pipeline and a sample, for `coexec plan pipeline`."""
    items, weights = start(nodes, 1)
    return cx.Pipeline(gcn_layers, **weights), items[0]


def gin(nodes=20_000):
    """Return the pipeline and a sample, for `coexec plan pipeline`."""
    items, weights = start(nodes, 1)
    return cx.Pipeline(gin_layers, **weights), items[0]


def main(nodes=4_000, count=24, network="gcn", timeline=""):
    items, weights = start(nodes, count)
    function = {"gcn": gcn_layers, "gin": gin_layers}[network]
    shown(
        f"{network}, {nodes} nodes", function, weights, items,
        lambda item: with_numpy(network, item, **weights), timeline, tolerance=1e-2,
    )  # fmt: skip


if __name__ == "__main__":
    given, drawn = arguments()
    main(*given, timeline=drawn)
