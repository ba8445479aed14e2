import base64
import random
import zlib

from distdbg.evidence.host.probe_lines import ProbeUnpacker, pack

GENERATOR = random.Random(1)
VALUE = {"names": {"hostname": "node1"}, "long": [GENERATOR.random() for _ in range(500)]}


def test_lines_of_two_nodes_mixed_with_noise_come_out_whole():
    first, second = list(pack("node1", "looked", VALUE)), list(pack("node2", "looked", VALUE | {"x": "\n é"}))
    assert len(first) > 5 and max(map(len, first)) < 900  # Slurm cuts at 1024
    unpacker = ProbeUnpacker()
    messages = []
    for one, two in zip(first, second[: len(first)], strict=True):
        messages += [unpacker.take(f"0: {one}\r\n"), unpacker.take("Welcome to node1!\n"), unpacker.take(two)]
    messages += [unpacker.take(line) for line in second[len(first) :]]
    assert [one for one in messages if one] == [("node1", "looked", VALUE), ("node2", "looked", VALUE | {"x": "\n é"})]
    assert unpacker.noise[0] == "Welcome to node1!"


def test_what_is_broken_is_not_reported():
    unpacker = ProbeUnpacker()
    line = next(iter(pack("n", "met", {"a": 1})))
    assert unpacker.take(line[:-6]) is None
    assert unpacker.take("distdbg-probe n met 1/1 AAAA") is None
    nested = base64.b64encode(zlib.compress(b"[" * 100_000)).decode()
    assert unpacker.take(f"distdbg-probe n met 1/1 {nested}") is None
    assert unpacker.take(line) == ("n", "met", {"a": 1})
