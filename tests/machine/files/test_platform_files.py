"""Platform files: what is written loads again to the same, and what is wrong is named with file, line and field."""

from __future__ import annotations

import random
import re
import tomllib
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from coexec.errors import ConfigError, PlatformError
from coexec.machine.files import loading as files
from coexec.machine.files.schema import TABLES
from coexec.machine.files.writing import text_of, value
from coexec.machine.platform import HOST, USER, Device, Link, Memory, Platform, host_links
from coexec.machine.topology import Parts
from tests.machine.platform_files import CLUSTER, HOST_ONLY, NODE, platform, refused

PRESETS = Platform.presets()


def attempted(text: str) -> Parts | PlatformError:
    """Return what a text describes, or why it describes nothing."""
    try:
        return files.parse(text, "here.toml")
    except PlatformError as error:
        return error


def written(described: Platform) -> Platform:
    """Return the platform after a way through its text."""
    return Platform(*files.parse(text_of(described._parts())))


# Presets ----------------------------------------------------------------------------------------------------------------


def test_the_presets_are_those_that_planners_were_promised() -> None:
    assert {"laptop", "workstation", "a100x4", "a100x128", "mi210x8", "edge-soc", "f1.16xlarge"} < set(PRESETS)
    assert {"dype-pcie4", "dype-pcie5", "dype-cxl3"} < set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_loads_and_round_trips(name: str, tmp_path: Path) -> None:
    loaded = Platform.load(name)
    loaded.save(tmp_path / "copy.toml")
    assert Platform.load(tmp_path / "copy.toml") == loaded
    assert loaded.name == name and loaded.about and name in loaded.describe()


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_complete_and_its_figures_make_sense(name: str) -> None:
    loaded = Platform.load(name)
    for device in loaded.devices:
        assert device.description and device.bandwidth and (device.flops or device.rates)
        assert device.watts is not None and device.idle_watts is not None and 0 < device.idle_watts < device.watts
        assert device.kind in ("cpu", "gpu", "fpga", "npu")
        memory = loaded.memories[device.memory]
        assert memory.capacity and (memory.bandwidth is None or device.bandwidth <= memory.bandwidth)
        assert dict(device.rates).get("float64", 0.0) <= (device.flops or inf) * 1.001
    for one in {device.memory for device in loaded.devices} - {HOST}:
        host = HOST if loaded.topology is None else loaded.topology.memory(loaded.topology.place(one)[0], HOST)
        assert one == host or (loaded.link(host, one) is not None and loaded.link(one, host) is not None)


@pytest.mark.parametrize("name", PRESETS)
def test_every_figure_of_a_preset_names_its_source(name: str) -> None:
    text = files.presets()[name].read_text(encoding="utf-8")
    assert "# Sources" in text and '"estimate" marks what no data sheet says' in text
    for line in text.splitlines():
        if re.match(r"(launch|idle_watts|latency) ", line):
            assert "estimate" in line, line


def test_the_three_variants_of_a_machine_differ_in_their_links_only() -> None:
    variants = [Platform.load(f"dype-{name}") for name in ("pcie4", "pcie5", "cxl3")]
    assert variants[0].devices == variants[1].devices == variants[2].devices
    assert [device.kind for device in variants[0].devices] == ["cpu", "fpga", "fpga", "fpga", "gpu", "gpu"]
    fpga, gpu = variants[0].device("fpga:0").memory, variants[0].device("gpu:0").memory
    seconds = [link.seconds(1 << 26) for v in variants if (link := v.link(fpga, gpu)) is not None]
    assert len(seconds) == 3 and seconds[0] > seconds[1] > seconds[2]


def test_fpgas_of_one_group_reach_each_other_and_others_through_the_host() -> None:
    machine = Platform.load("f1.16xlarge")
    fpga = [machine.device(f"fpga:{i}").memory for i in range(8)]
    inside = machine.link(fpga[0], fpga[3])
    assert inside is not None and inside.bandwidth == 1e9 and machine.link(fpga[0], fpga[4]) is None
    out = machine.link(fpga[0], HOST)
    assert out is not None and out.bandwidth == 0.25e9
    assert machine.device("fpga:7").designs == ("superlip", "systolic", "winograd")
    assert machine.device("fpga:7").load == 2.0


# Loading and saving -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [HOST_ONLY, NODE, CLUSTER, CLUSTER + "total = 6e9\n"])
def test_what_is_written_reads_as_the_same(text: str) -> None:
    assert written(platform(text)) == platform(text)


def test_what_is_alike_is_written_as_one() -> None:
    tables = tomllib.loads(text_of(platform(CLUSTER)._parts()))
    assert [(d["name"], d["count"]) for d in tables["device"]] == [("cpu", 2), ("gpu", 4)]
    assert len(tables["link"]) == 4 and tables["nodes"] == 3


def test_a_machine_as_backends_make_it_round_trips() -> None:
    devices = (
        Device("cpu:0", "cpu", HOST, (HOST, USER), "cpu X", (0,), eager=False, description="core 0 of X"),
        Device("cpu:1", "cpu", HOST, (HOST, USER), "cpu X", (3,), eager=False, description="core 3 of X"),
        Device("cpu:all", "cpu", HOST, (HOST, USER), "cpu X x2", (0, 3), wide=True, eager=False, description="all"),
        Device("opencl:0", "opencl", 2, (), "gpu", lanes=8, waits_across_lanes=True, software="driver 1", flops=1e12),
        Device("opencl:1", "opencl", HOST, (HOST,), "igpu", description='a "name" \\ with é'),
    )
    memories = (Memory("user"), Memory("host", 12345, paged=True), Memory("opencl:0", 6 << 30))
    links = host_links([2])
    links[HOST, 2] = Link(HOST, 2, 1.25e-6, 12345678901.25)
    links[USER, HOST] = Link(USER, HOST, 1e-6, 3e9)
    machine = Platform(devices, memories, links)
    assert written(machine) == machine


def test_a_cluster_whose_nodes_differ_cannot_be_saved(tmp_path: Path) -> None:
    cluster = platform(CLUSTER)
    odd = replace(cluster, devices=(*cluster.devices[:-1], replace(cluster.devices[-1], watts=1.0, idle_watts=0.0)))
    with pytest.raises(PlatformError, match="nodes are not alike"):
        odd.save(tmp_path / "odd.toml")
    assert not (tmp_path / "odd.toml").exists()


@settings(max_examples=60)
@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(["gpu", "fpga"]), st.integers(1, 3), st.floats(1e6, 1e14)), max_size=4),
    st.floats(0, 1e-3),
    st.sampled_from(["direct", "switch", "one_way", "bus"]),
)
def test_any_platform_round_trips(nodes: int, groups: list[tuple[str, int, float]], latency: float, how: str) -> None:
    lines = [f"nodes = {nodes}", HOST_ONLY]
    if nodes > 1:
        lines.append('[network]\nbandwidth = 1e9\nlatency = 0\n[[nic]]\nname = "nic"')
        lines.append('[[link]]\nfrom = "nic"\nto = "host"\nbandwidth = 2e9\nlatency = 0.0')
    for i, (kind, many, bandwidth) in enumerate(groups):
        name = f"{kind}{i}"
        figures = f"bandwidth = {bandwidth!r}\nlatency = {latency!r}"
        lines.append(f'[[memory]]\nname = "{name}"\ncount = {many}\ncapacity = {1000 + i}')
        lines.append(f'[[device]]\nname = "{name}"\ncount = {many}\nkind = "{kind}"\nmemory = "{name}"')
        lines.append(f'[[bus]]\nname = "b{i}"\n{figures.partition(chr(10))[0]}\n[[switch]]\nname = "s{i}"')
        if how == "switch":
            lines.append(f'[[link]]\nfrom = "s{i}"\nto = ["host", "{name}"]\n{figures}')
        elif how == "one_way":
            lines.append(f'[[link]]\nfrom = "host"\nto = "{name}"\none_way = true\n{figures}')
            lines.append(f'[[link]]\nfrom = "{name}"\nto = "host"\none_way = true\nbandwidth = 7.0\nlatency = 0.0')
        else:
            shared = f'\nshared = "b{i}"' if how == "bus" else ""
            lines.append(f'[[link]]\nfrom = "host"\nto = "{name}"\n{figures}{shared}')
    made = platform("\n".join(lines))
    assert written(made) == made


@given(
    st.one_of(st.text(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**60), 2**60), st.booleans())
)
def test_any_value_is_written_as_toml_reads_it(given: object) -> None:
    if isinstance(given, str) and not given.isprintable():
        return
    assert tomllib.loads(f"x = {value(given)}")["x"] == given


def test_a_file_without_a_name_is_called_as_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(HOST_ONLY, encoding="utf-8")
    assert Platform.load(path).name == "mine" and Platform.load(str(path)).name == "mine"
    path.write_text('\ufeffname = "other"\r\n' + HOST_ONLY.replace("\n", "\r\n"), encoding="utf-8")
    assert Platform.load(path).name == "other"


# What is wrong --------------------------------------------------------------------------------------------------------------


def test_an_unknown_preset_is_answered_with_the_nearest() -> None:
    with pytest.raises(PlatformError, match=r"unknown platform 'a100x5'; did you mean 'a100x4'\? .*end in \.toml"):
        Platform.load("a100x5")


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match=r"nothing\.toml: cannot be read: No such file"):
        Platform.load(tmp_path / "nothing.toml")
    (tmp_path / "picture.toml").write_bytes(b"\x89PNG\xff")
    with pytest.raises(PlatformError, match=r"picture\.toml: is not text in UTF-8"):
        Platform.load(tmp_path / "picture.toml")
    with pytest.raises(PlatformError, match="cannot be read"):
        Platform.load(tmp_path)
    with pytest.raises(ConfigError, match="cannot write the platform"):
        platform(HOST_ONLY).save(tmp_path / "no" / "where.toml")


WRONG = [
    ('kind = "gpu"', 'kin = "gpu"', "device.kin", r"unknown field 'kin'; did you mean 'kind'\?"),
    ("watts = 100.0", "watts = -1", "device.watts", "must be a number, and not negative, not -1"),
    ("watts = 100.0", "watts = nan", "device.watts", "must be a finite number"),
    ("watts = 100.0", "watts = 5.0", "device.idle_watts", "10 W while it waits is more than 5 W"),
    ("float64 = 1e12", "float46 = 1e12", "device.flops", r"unknown type 'float46'; did you mean 'float64'\?"),
    ("float64 = 1e12", "float64 = 0", "device.flops", "each rate must be a number above 0"),
    ("count = 2\ncores = 4", "count = 0\ncores = 4", "device.count", "must be a whole number from 1 to 4096, not 0"),
    ("count = 2\ncores = 4", "count = 2\ncores = true", "device.cores", "must be a whole number"),
    ('memory = "gpu"\nmodel', 'memory = "gpuu"\nmodel', "device.memory", r"unknown memory 'gpuu'; did you mean 'gpu'\?"),
    ('memory = "gpu"\nmodel', "model", "device.memory", "is missing"),
    ('capacity = "2 GB"', 'capacity = "2 potatoes"', "memory.capacity", "must be bytes"),
    ('capacity = "2 GB"', "capacity = 2.5", "memory.capacity", "must be bytes"),
    ('from = "gpu:0"\nto = "gpu:1"', 'from = "gpu:0"\nto = "gpu:9"', "link.to", "unknown memory, switch or nic 'gpu:9'"),
    ('from = "gpu:0"\nto = "gpu:1"', 'from = "gpu:0"\nto = "gpu:0"', "link.to", "leads nowhere but to itself"),
    ('from = "gpu:0"\nto = "gpu:1"', 'from = "cpu:0"\nto = "gpu:1"', "link.from", "'cpu:0' is a device; its memory is"),
    ('from = "gpu:0"\nto = "gpu:1"', 'from = "pcie:0"\nto = "gpu:1"', "link.to", "there is a link from 'pcie:0' to"),
    ('from = "gpu:0"\nto = "gpu:1"', 'from = "gpu:0"\nto = "user"', "link.to", "nothing is ever copied to what the user"),
    ("bandwidth = 100e9", "bandwidth = 0", "link.bandwidth", "must be a number above 0"),
    ("bandwidth = 100e9", "bandwidth = 1e-300", "link.bandwidth", r"must be a number from 1e-06 to 1e\+30, not 1e-300"),
    ("bandwidth = 100e9", "bandwidth = 1e300", "link.bandwidth", r"must be a number from 1e-06 to 1e\+30"),
    ("watts = 100.0", "watts = 1e300", "device.watts", r"must be a number of at most 1e\+09"),
    ("bandwidth = 100e9", 'bandwidth = "fast"', "link.bandwidth", "must be a number"),
    ("bandwidth = 100e9", "bandwidth = 100e9\nshared = 'x'", "link.shared", "unknown bus 'x'"),
    ("bandwidth = 100e9", "", "link.bandwidth", "is missing"),
    ("pairwise = true", "pairwise = 1", "link.pairwise", "must be true or false"),
    ('from = "pcie"\nto = "gpu"', 'from = "pcie"\nto = ["gpu:0"]', "link.pairwise", "cannot be dealt"),
    ('name = "pcie"\ncount = 2', 'name = "gpu"\ncount = 2', "switch.name", "is the name of something else"),
    ('name = "pcie"\ncount = 2', 'name = "network"', "switch.name", "'network' is taken"),
    ('name = "pcie"\ncount = 2', 'name = "pcie:0"\ncount = 2', "switch.name", "must have no colon"),
    ('to = "nic"\nbandwidth = 20e9', 'to = "gpu:3"\nbandwidth = 20e9', "nic.name", "no link leads from 'host' to 'nic'"),
    ('from = "host"\nto = "pcie"', 'from = "host"\nto = "pcie:0"', "device.memory", "no link leads from 'host' to 'gpu:2'"),
    ('[[nic]]\nname = "nic"', '[[nic]]\nname = "a b"', "nic.name", "must be a name"),
    ("[network]", "[[network]]", "network", r"must be one table, \[network\]"),
    ("[network]", "[netwrok]", "netwrok", r"unknown field 'netwrok'; did you mean 'network'\?"),
    ("nodes = 3", "nodes = 3.0", "nodes", "must be a whole number"),
    ("nodes = 3", "nodes = 3\nbus = 1", "bus", r"must be written \[\[bus\]\]"),
    ("nodes = 3", "nodes = 3\nbus = [1]", "bus", "must be a table"),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "field", "words"), WRONG, ids=[f"{f}: {m[:30]}" for _, _, f, m in WRONG])
def test_what_is_wrong_is_named_with_file_line_and_field(right: str, wrong: str, field: str, words: str) -> None:
    assert CLUSTER.count(right) >= 1
    text = CLUSTER.replace(right, wrong, 1)
    error = refused(text)
    assert error.field == field and re.search(words, str(error)), str(error)
    assert str(error).startswith(f"here.toml:{error.line}: {field}: ")
    key, lines = field.rpartition(".")[2], text.splitlines()
    assert error.line is not None
    assert re.match(rf"\[*{key}\b", lines[error.line - 1]) or "missing" in words, lines[error.line - 1]


def test_the_error_is_one_about_configuration() -> None:
    assert issubclass(PlatformError, ConfigError) and issubclass(PlatformError, ValueError)


def test_a_missing_field_is_named_at_its_table() -> None:
    error = refused(NODE.replace("bandwidth = 100e9\n", ""))
    assert error.line is not None and NODE.splitlines()[error.line - 1] == "[[link]]"
    assert NODE.splitlines()[error.line] == 'from = "gpu:0"'


def test_what_every_platform_needs_is_asked_for() -> None:
    assert refused("").field == "memory" and refused("").line == 1
    assert "at least one [[device]]" in str(refused('[[memory]]\nname = "host"\n'))
    assert "needs a [[memory]]" in str(refused('[[memory]]\nname = "host"\ncount = 2\n'))
    assert "need a [network]" in str(refused("nodes = 2\n" + HOST_ONLY))


def test_absurd_sizes_are_refused_at_once() -> None:
    big = NODE.replace("count = 4\n", "count = 4096\n")
    assert "put a [[switch]] between" in str(
        refused(big + '[[link]]\nfrom = "gpu"\nto = "gpu"\nbandwidth=1\nlatency=1\n')
    )
    assert "more than 65536 devices" in str(refused("nodes = 4096\n" + CLUSTER.replace("nodes = 3", "").replace(
        "count = 2\ncores = 4", "count = 20\ncores = 4")))  # fmt: skip


def test_text_that_is_no_toml_is_named_with_its_line() -> None:
    error = refused(HOST_ONLY + "this is no TOML\n")
    assert error.line == HOST_ONLY.count("\n") + 1 and "not valid TOML" in str(error)
    assert refused("x = [").line == 1
    assert "not valid TOML" in str(refused("x = " + "[" * 100_000))
    assert "not valid TOML" in str(refused("x = " + "9" * 10_000))


# Fuzzing --------------------------------------------------------------------------------------------------------------------

TEXTS = [files.presets()[name].read_text(encoding="utf-8") for name in PRESETS] + [CLUSTER]
SCRAPS = [
    "", "\n", "=", "[", "]]", "[[link]]", "[network]", '"', "'''", "{", "}", "-", "0", "1e400", "nan", "true", "9" * 40,
    '"gpu"', '["host", "gpu"]', "name", "count = 3\n", "nodes = 2\n", "#", "\\", "\x00", "é", "2026-01-01", "{ a = 1 }",
]  # fmt: skip


def mutated(text: str, source: random.Random) -> str:
    """Return the text with a few accidents."""
    for _ in range(source.randint(1, 4)):
        lines = text.split("\n")
        i, j = source.randrange(len(lines)), source.randrange(len(text) + 1)
        match source.randrange(6):
            case 0:
                text = text[:j] + source.choice(SCRAPS) + text[j + source.randint(0, 3) :]
            case 1:
                text = "\n".join(lines[:i] + lines[i + 1 :])
            case 2:
                text = "\n".join([*lines[:i], source.choice(lines), *lines[i:]])
            case 3:
                key, equals, _ = lines[i].partition(" = ")
                text = "\n".join([*lines[:i], key + equals + source.choice(SCRAPS), *lines[i + 1 :]])
            case 4:
                words = re.findall(r'"[^"\n]*"|\b[\w.]+\b', text) or [""]
                text = text.replace(source.choice(words), source.choice(words), source.randint(1, 3))
            case _:
                text = text[: max(j, 1)]
    return text


@settings(max_examples=400)
@given(st.sampled_from(TEXTS), st.randoms(use_true_random=False))
def test_a_damaged_file_loads_or_is_refused_with_its_line(text: str, source: random.Random) -> None:
    text = mutated(text, source)
    found = attempted(text)
    if isinstance(found, PlatformError):
        assert found.file == "here.toml" and str(found).startswith("here.toml")
        named = found.line is not None and 1 <= found.line <= text.count("\n") + 1 and found.field
        assert named or "not valid TOML" in str(found)
    else:
        assert attempted(text_of(found)) == found


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")))
def test_bytes_that_are_no_platform_are_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "random.toml"
    path.write_bytes(data)
    with pytest.raises(PlatformError):
        Platform.load(path)


def test_every_field_of_the_schema_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "howto" / "platforms.md").read_text(encoding="utf-8")
    for table, fields in TABLES.items():
        for field in fields:
            assert f"`{field}`" in page, f"{table}.{field}"
    assert [name for name in PRESETS if f"`{name}`" not in page] == []
