"""What happens to bytes on the way, seeded."""

from __future__ import annotations

ODD = [b"9" * 5000, b"[" * 3000, b"\xff\xfe", b"\0", b"1e999", b"-1", b'"', b"nan", b"{"]


def spoiled(blob, draw):
    """Some bytes changed, a piece taken out, doubled, cut off, or filled with what parsers mind."""
    data = bytearray(blob)
    for _ in range(int(draw.integers(1, 5))):
        here = int(draw.integers(len(data) + 1))
        there = min(len(data), here + int(draw.integers(1, 40)))
        what = int(draw.integers(6))
        if what == 0 and here < len(data):
            data[here] ^= 1 << int(draw.integers(8))
        elif what == 1 and here < len(data):
            data[here] = int(draw.integers(256))
        elif what == 2:
            del data[here:there]
        elif what == 3:
            data[here:here] = data[here:there]
        elif what == 4 and draw.integers(4) == 0:
            del data[here:]
        else:
            data[here:here] = ODD[int(draw.integers(len(ODD)))]
    return bytes(data)
