"""What tests run on each rank of a real cluster: `python rank_program.py WHAT`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

import numpy as np

from coexec.cluster.collectives import allgather, barrier
from coexec.cluster.opening import Cluster, open_transport
from coexec.testing import check_transport


def contract(transport: Cluster) -> None:
    """Keep the contract, in parts of 100 kB; the first transport stays open, and the others come and go."""
    from coexec.cluster.endpoint import Endpoint
    from coexec.cluster.launched import launched
    from coexec.cluster.opening import CARRIERS
    from coexec.cluster.transport import Transport

    found = launched(os.environ)
    assert found is not None

    def open() -> Transport:
        return Endpoint(CARRIERS[found.transport](found), part=100_000)

    check_transport(open)
    said = allgather(transport, f"rank {transport.rank} of {transport.size}".encode())
    transport.close()
    sys.stdout.write(f"kept by {said[transport.rank].decode()}, {transport.hosts[0] and 'named'}\n")


def recovered(transport: Cluster) -> None:
    """Let a second transport fail, close the first one together, and end one after the other."""
    from coexec.cluster.endpoint import Endpoint
    from coexec.cluster.mpi import MpiCarrier
    from coexec.errors import RankAborted

    second = Endpoint(MpiCarrier())
    if second.rank == 0:
        second.abort("it is not needed")
    with suppress(RankAborted):
        second.close()
    rank = transport.rank
    transport.close()
    if rank:
        subprocess.run([sys.executable, "-c", "import numpy"], check=True)  # the others are long at their end
    sys.stdout.write(f"rank {rank} ends by itself\n")


def wait_for(transport: Cluster, rank: int) -> None:
    """Wait for what a rank never sends."""
    barrier(transport)
    transport.receive(rank, 5, np.zeros(10)).wait()


def lost(transport: Cluster, how: str) -> None:
    """Let the last rank end in some way, while the others wait for it."""
    last = transport.size - 1
    if transport.rank < last:
        wait_for(transport, last)
    barrier(transport)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "_exit":
        os._exit(3)
    elif how == "exit":
        sys.exit(4)
    raise ZeroDivisionError("the last rank cannot divide")


def arrays() -> None:
    """Compute with arrays on all ranks; each prints what it found."""
    import coexec as cx

    @cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update)
    def smooth(u: Any, out: Any) -> None:
        out[...] = (u[:-2] + u[1:-1] + u[2:]) / 3

    data = np.arange(300_000.0) % 1000
    u, v = cx.array(data), cx.zeros(len(data))
    for _ in range(10):
        smooth(u, v)
        u, v = v, u
    norm = np.sqrt(cx.sum(u * u))
    a, b = data.copy(), np.zeros(len(data))
    for _ in range(10):
        b[1:-1] = (a[:-2] + a[1:-1] + a[2:]) / 3
        a, b = b, a
    np.testing.assert_array_equal(np.asarray(u), a)
    np.testing.assert_allclose(float(norm), float(np.sqrt((a * a).sum())))
    product = cx.matmul(cx.array(np.ones((60, 40))), cx.array(np.ones((40, 50))))
    np.testing.assert_array_equal(np.asarray(product), 40)
    streamed()
    with cx.Runtime() as runtime:
        cores = sum(len(device.cores) for device in runtime.platform.devices if not device.wide)
    sys.stdout.write(f"computed by rank {cx.rank()} of {cx.ranks()} with {cores} cores\n")


def models() -> None:
    """Compute a model on all ranks, with and without the plan that the first rank finds for all of them."""
    import json
    from hashlib import sha256

    import coexec as cx
    from coexec.models.building import NetBuilder

    net = NetBuilder("net")
    model = cx.Model(net.done(net.same("Relu", net.fc(net.input("x", (64, 32)), 16))))
    x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    weights, bias = (np.array(model.graph.constant(name)) for name in model.graph.constants)
    plan = model.plan(budget=1.0)
    for way in ({}, {"plan": plan}, {}, {"plan": plan}):
        found = cx.gather(model(x, **way))
        if cx.rank() == 0:
            np.testing.assert_allclose(found, np.maximum(x @ weights.T + bias, 0), rtol=1e-4, atol=1e-5)
    digest = sha256(json.dumps(plan.as_dict(), sort_keys=True).encode()).hexdigest()
    sys.stdout.write(f"computed with plan {digest}\n")


def streamed() -> None:
    """Stream items through a function; every rank gets what NumPy computes of each."""
    import coexec as cx

    items = [np.full((6, 5), number, np.float64) for number in range(7)]
    with cx.Pipeline(lambda x, w: np.tanh(cx.matmul(x, w)), w=np.eye(5)) as pipe:
        for found, item in zip(pipe.map(items), items, strict=True):
            np.testing.assert_allclose(found, np.tanh(item), rtol=1e-12)


def troubled(how: str) -> None:
    """Compute in a loop, in which the last rank does something else than the others."""
    import coexec as cx

    @cx.kernel(split=0, x=cx.read, y=cx.update)
    def add(x: Any, y: Any, a: float) -> None:
        y += a * x

    last = cx.rank() == cx.ranks() - 1
    large = np.zeros(100_000)
    x, y = cx.array(np.ones(1000)), cx.zeros(1000)
    for step in range(10_000):
        add(x, y, 2.0 if last and how == "diverge" and step == 5 else 1.0)
        if last and step == 5:
            if how in ("kill", "stop"):
                os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)
            elif how == "_exit":
                os._exit(3)
            elif how == "exit":
                sys.exit(4)
            elif how == "raise":
                raise ZeroDivisionError("the last rank cannot divide")
            elif how == "hang":
                cx.wait()
            elif how == "unequal":
                large[50_000] = 1.0
        if step == 6:
            x = cx.array(large)[:1000] + x
        np.asarray(y[::100])


def restarted(folder: str) -> None:
    """Go on from a checkpoint, and lose a rank at each of the first two steps."""
    import coexec as cx

    state = cx.restore(folder, default=None) or {"u": cx.array(np.arange(100.0)), "step": 0}
    u, step = state["u"], int(state["step"])
    sys.stdout.write(f"rank {cx.rank()} begins at step {step}\n")
    sys.stdout.flush()
    while step < 4:
        u, step = u * 2, step + 1
        cx.checkpoint(folder, u=u, step=step)
        if step == state["step"] + 1 < 3 and cx.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        cx.wait()
    np.testing.assert_array_equal(np.asarray(u), np.arange(100.0) * 16)
    sys.stdout.write(f"rank {cx.rank()} is done\n")


def main() -> None:
    """Do what the command line says."""
    if sys.argv[1] == "arrays":
        arrays()
        return
    if sys.argv[1] == "models":
        models()
        return
    if sys.argv[1] == "restarted":
        restarted(sys.argv[2])
        return
    if sys.argv[1] == "troubled":
        troubled(sys.argv[2])
        return
    transport = open_transport()
    if sys.argv[1] == "contract":
        contract(transport)
    elif sys.argv[1] == "recovered":
        recovered(transport)
    else:
        lost(transport, sys.argv[2])


if __name__ == "__main__":
    main()
