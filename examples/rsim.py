"""A flash of light in a room: each patch of wall shines on all others, and what arrives left them some time ago.

Step t reads all earlier rows of the light's history and writes row t: accesses that grow.

Run it with: python examples/rsim.py [PATCHES_PER_EDGE] [STEPS] [--devices DEVICES] [--picture FILE]
"""

from pathlib import Path

import numpy as np
from common import arguments, figure, timer

import coexec as cx

PACE = 8  # time steps that light needs for the length of the room
REFLECT = 0.75  # share of the light that a wall gives back
SCREEN = np.array([[0.15, 0.45, 0.3], [0.5, 0.9, 0.35]])  # a board that hangs in the room, as two corners of a box


@cx.kernel(split=0, form=cx.read, when=cx.read, past=cx.read(cx.all), out=cx.write, flops=lambda form: 2 * form.size)
def bounce(form, when, past, out):
    """Add up what arrives at my patches. `when` says which element of the past, counted from its end, reaches whom now."""
    np.vecdot(form, past.reshape(-1)[when], out=out)


source = Path(__file__).with_name("rsim.cl").read_text(encoding="utf-8")
bounce.opencl(source, numerics=cx.close(1e4))  # sums in another order


def walls(edge):
    """Return the middles of all patches of the room, a cube of side 1, and which way each one faces."""
    a, b = (np.mgrid[:edge, :edge].reshape(2, -1) + 0.5) / edge
    places, ways = [], []
    for axis in range(3):
        for end in (0.0, 1.0):
            places.append(np.insert(np.stack([a, b], axis=1), axis, end, axis=1))
            ways.append(np.tile(np.eye(3)[axis] * (1 - 2 * end), (edge**2, 1)))
    return np.concatenate(places), np.concatenate(ways)


def start(edge, steps):
    """Return form factors, delays, and the light's history with its beginning: darkness, then a flash of the lamp."""
    place, way = walls(edge)
    count = len(place)
    form, when = np.empty((count, count)), np.empty((count, count), np.intp)
    for i in range(count):
        ray = place - place[i]
        square = (ray**2).sum(axis=1)
        facing = np.maximum(ray @ way[i], 0) * np.maximum((-ray * way).sum(axis=1), 0)  # the cosines, times the square
        form[i] = REFLECT * seen(place[i], ray) * facing / np.maximum(square, 1e-9) / (np.pi * square * edge**2 + 1)
        when[i] = np.arange(count) - count * (1 + (PACE * np.sqrt(square)).astype(int))
    dark = int(PACE * 3**0.5) + 1
    history = np.zeros((dark + 1 + steps, count))
    history[dark, (abs(place - [0.5, 0.5, 1.0]) < 0.15).all(axis=1)] = 1.0  # the lamp, in the middle of the ceiling
    return form, when, history


def seen(place, ray):
    """Tell for each ray from a place whether it misses the screen: where it is inside all three pairs of planes."""
    with np.errstate(divide="ignore", invalid="ignore"):
        hits = (SCREEN[:, None] - place) / ray
    enters, leaves = np.nanmax(hits.min(axis=0), axis=1), np.nanmin(hits.max(axis=0), axis=1)
    return (enters > leaves) | (leaves < 0) | (enters > 1)


def compute(form, when, history, steps):
    """Return the history after so many steps; returns at once."""
    for t in range(len(history) - steps, len(history)):
        bounce(form, when, history[:t], history[t])  # views: this waits for earlier rows only
    return (history,)


def reference(form, when, history, steps):
    """Return the same, computed with NumPy; it changes the history."""
    for t in range(len(history) - steps, len(history)):
        history[t] = (form * history[:t].ravel()[when]).sum(axis=1)
    return (history,)


def main():
    args = arguments(__doc__, edge=16, steps=60)
    given = start(args.edge, args.steps)
    with cx.Runtime(devices=args.devices), timer() as took:
        (history,) = map(np.asarray, compute(*map(cx.array, given), args.steps))  # waits
    with timer() as plain:
        (expected,) = reference(*given, args.steps)

    assert np.allclose(history, expected, rtol=1e-9)
    print(
        f"{args.steps} steps of {6 * args.edge**2} patches: {took.seconds:.2f} s, NumPy {plain.seconds:.2f} s, "
        f"light differs by {np.abs(history - expected).max():.0e}"
    )
    if args.picture:
        six = history[-args.steps :].sum(axis=0).reshape(6, args.edge, args.edge).transpose(0, 2, 1)[:, ::-1]
        with figure(args.picture) as axes:  # x = 0, y = 0 and the floor above; x = 1, y = 1 and the ceiling below
            axes.imshow(np.block([[*six[::2]], [*six[1::2]]]), cmap="inferno")


if __name__ == "__main__":
    main()
