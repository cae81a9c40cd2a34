"""Plans that run here: measured latency against the best device alone, ONNX Runtime, torch, and the prediction.

Before: coexec's public names, models/.  After: bench/dnn/harness.py.  Torch runs the same networks operation by operation, as a
peer for speed; it knows the operations of these networks only, and is imported when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

from ... import Model, Plan, Runtime
from ...errors import CoexecError, UnsupportedError
from ...machine.cores import available_cores
from ...models.building import NetBuilder
from ...models.values import LayerGraph, OpNode
from ..measure import Others


def torch_network(graph: LayerGraph, inputs: Mapping[str, Any]) -> Callable[[], list[Any]]:
    """Return a function that computes the results of a graph for some inputs; raise UnsupportedError for other operations."""
    import torch

    known = operations()
    if other := sorted({node.kind for node in graph.operations} - known.keys()):
        raise UnsupportedError(f"torch computes {graph.name} here without {', '.join(other)} only")
    constants = {name: torch.from_numpy(np.array(graph.constant(name))) for name in graph.constants}
    given = constants | {name: torch.from_numpy(value) for name, value in inputs.items()}

    def run() -> list[Any]:
        values = dict(given)
        with torch.inference_mode():
            for node in graph.operations:
                values[node.outputs[0]] = known[node.kind](node, *(values[name] for name in node.inputs))
        return [values[name].numpy() for name in graph.outputs]

    return run


def operations() -> dict[str, Callable[..., Any]]:
    """Return what torch calls the operations of these networks."""
    import torch
    from torch.nn import functional as f

    def conv(node: OpNode, x: Any, w: Any, bias: Any = None) -> Any:
        given = node.attributes
        return f.conv2d(x, w, bias, given["strides"], given["pads"][:2], given["dilations"], given["group"])

    def pool(node: OpNode, x: Any) -> Any:
        given = node.attributes
        return f.max_pool2d(x, given["kernel_shape"], given["strides"], given["pads"][:2])

    return {
        "Conv": conv,
        "MaxPool": pool,
        "Relu": lambda _, x: torch.relu(x),
        "Clip": lambda _, x, low, high: torch.clamp(x, low, high),
        "Add": lambda _, x, y: x + y,
        "Mul": lambda _, x, y: x * y,
        "MatMul": lambda _, x, y: x @ y,
        "Gemm": lambda _, x, w, bias: f.linear(x, w, bias),
        "GlobalAveragePool": lambda _, x: x.mean((2, 3), keepdim=True),
        "Flatten": lambda _, x: x.flatten(1),
        "Identity": lambda _, x: x,
        "Reshape": lambda _, x, to: x.reshape(to.tolist()),
        "Transpose": lambda node, x: x.permute(node.attributes["perm"]),
        "Softmax": lambda node, x: torch.softmax(x, node.attributes["axis"]),
        "Gelu": lambda _, x: f.gelu(x),
        "LayerNormalization": lambda node, x, w, b: f.layer_norm(x, w.shape, w, b, node.attributes["epsilon"]),
    }


NETWORKS = ("resnet18", "mobilenet_v2", "small_cnn", "encoder_block")
"""The networks that run; the second has depthwise layers."""
DEVICES = ("cpu:0,cpu:1", "cpu:0,opencl:0@1", "cpu:0,torch:cpu@1", "torch:cpu")
REPEATED = {True: 5, False: 15}
"""Runs of which the quickest counts, after as many to warm up."""
ROUNDS = 2
"""How often everything that is compared takes its turn."""
Case = dict[str, Any]


def networks(quick: bool) -> dict[str, Model]:
    """Return the networks that run: a residual network, a small one, and a block of an encoder."""
    net = NetBuilder("small_cnn")
    x = net.input("image", (1, 3, 64, 64))
    for filters, stride in ((32, 1), (64, 2), (64, 1), (128, 2)):
        x = net.same("Relu", net.conv(x, filters, 3, stride))
    small = Model(net.done(net.fc(net.flatten(net.global_pool(x)), 10)))
    encoder = Model.named("encoder", length=128, width=256, blocks=1, heads=4)
    residual = Model.named("resnet18", image=64 if quick else 224)
    mobile = Model.named("mobilenet_v2", image=64 if quick else 224)
    return {"resnet18": residual, "mobilenet_v2 (depthwise)": mobile, "small_cnn": small, "encoder_block": encoder}


def real_cases(
    quick: bool, progress: Callable[[str], None], only: Sequence[str] = NETWORKS, mixes: Sequence[str] = DEVICES
) -> Iterator[Case]:
    """Yield each network on each choice of devices that this machine has."""
    for name, model in networks(quick).items():
        if name.partition(" ")[0] not in only:
            continue
        inputs = {n: np.random.default_rng(0).standard_normal(t.shape).astype(t.dtype) for n, t in model.inputs.items()}
        for devices in mixes:
            progress(f"{name} on {devices}")
            try:
                yield real_case(name, model, inputs, devices, REPEATED[quick])
            except CoexecError as error:
                yield {"model": name, "devices": devices, "error_text": str(error).partition("\n")[0]}


def real_case(name: str, model: Model, inputs: dict[str, Any], devices: str, times: int) -> Case:
    """Return one case. Everything that is compared takes turns in the same process: machines change."""
    others = Others()
    with Runtime(devices=devices):
        plan = model.plan(budget="20s", baselines=("single",))
    threads = threads_of(devices)
    runs: dict[str, Callable[[], Quickest | None]] = {
        f"single {one}": partial(alone, model, inputs, one, times) for one in devices.split(",")
    }
    runs |= {
        "planned": partial(alone, model, inputs, devices, times, plan),
        "free": partial(alone, model, inputs, devices, times),
        "onnxruntime": partial(by_onnxruntime, model, inputs, threads, times),
        "torch": partial(by_torch, model, inputs, threads, times),
    }
    rounds = [{what: run() for what, run in runs.items()} for _ in range(ROUNDS)]
    took = {what: fastest([one[what] for one in rounds]) for what in runs}
    planned, free, peer, other = (took[what] for what in ("planned", "free", "onnxruntime", "torch"))
    best = fastest([found for what, found in took.items() if what.startswith("single")])
    assert planned is not None and free is not None and best is not None, "coexec is here"
    predicted = plan.latency_s
    used = {part.device for group in plan.children for layer in group.children for part in layer.parts}
    return {
        "model": name, "devices": devices, "coexec_s": planned.seconds, "coexec_cpu_s": planned.processor,
        "unplanned_s": free.seconds, "best_single_s": best.seconds, "best_single_cpu_s": best.processor,
        "of_best_single": best.seconds / planned.seconds, "devices_used": sorted(used),
        "onnxruntime_s": None if peer is None else peer.seconds,
        "onnxruntime_cpu_s": None if peer is None else peer.processor,
        "torch_s": None if other is None else other.seconds, "torch_cpu_s": None if other is None else other.processor,
        "of_onnxruntime": None if peer is None else planned.seconds / peer.seconds, "predicted_s": predicted,
        "error": None if not predicted else abs(planned.seconds - predicted) / planned.seconds,
        "others_cores": others.cores(),
    }  # fmt: skip


def threads_of(devices: str) -> int:
    """Return how many cores devices compute on together: a core each, all of them for torch without a core named."""
    names = devices.split(",")
    return len(available_cores()) if "torch:cpu" in names else len(names)


class Quickest(NamedTuple):
    """The shortest of some runs, and the least processor time of all threads, which neighbours change less."""

    seconds: float
    processor: float


def fastest(found: Sequence[Quickest | None]) -> Quickest | None:
    """Return the least of several measurements, each figure by itself; None if there is none."""
    known = [one for one in found if one is not None]
    return Quickest(*map(min, zip(*known, strict=True))) if known else None


def alone(model: Model, inputs: dict[str, Any], devices: str, times: int, plan: Plan | None = None) -> Quickest:
    """Return what a model takes in a runtime of its own, as planned if there is a plan."""
    with Runtime(devices=devices):
        return quickest(lambda: np.asarray(model(**inputs, plan=plan)), times)


def quickest(run: Callable[[], object], times: int) -> Quickest:
    """Return the shortest of some runs, after as many to warm up: the first ones are planned, and what they take is learned."""
    found = []
    for _ in range(2 * times):
        begun, used = perf_counter(), process_time()
        run()
        found.append(Quickest(perf_counter() - begun, process_time() - used))
    return Quickest(*map(min, zip(*found[times:], strict=True)))


def by_onnxruntime(model: Model, inputs: dict[str, Any], threads: int, times: int) -> Quickest | None:
    """Return what it takes by ONNX Runtime with so many threads; None if it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    from ...models.onnx_writing import to_onnx

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    proto = to_onnx(model.graph)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return quickest(lambda: session.run(None, inputs), times)


def by_torch(model: Model, inputs: dict[str, Any], threads: int, times: int) -> Quickest | None:
    """Return what it takes by torch with so many threads; None if it is not installed."""
    try:
        import torch
    except ImportError:
        return None

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return quickest(torch_network(model.graph, inputs), times)
    finally:
        torch.set_num_threads(before)
