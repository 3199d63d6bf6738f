"""tests/sim/session_pages.py
What the processes of a session left in their stats pages (lifecycle/stats.h), read after they have ended."""
import glob
import os
import struct

MAGIC = 0x53544154534C4253
VERSION = 3
DEVICES = 16
NATIVE = ("small", "capture", "refused", "pitched", "uvm", "pool", "array", "vmm", "pinned")

HEAD = struct.Struct("<QIIiIQQQII32s16sII6Q")
BYTES = struct.Struct("<QQQQ")  # bytes, peak, count, total count
MOVED = struct.Struct("<4Q8Q")  # bytes by residency; allocations and bytes that came to each
REST = struct.Struct("<QQQ")  # requested, pending, cached
REST_AT = BYTES.size + MOVED.size
NATIVE_AT = REST_AT + REST.size
DEVICE_BYTES = NATIVE_AT + BYTES.size * len(NATIVE)


class Device:
    def __init__(self, data):
        self.managed_bytes, self.managed_peak, self.managed_live, self.managed_total = BYTES.unpack_from(data, 0)
        self.requested_bytes, self.pending_bytes, self.cached_bytes = REST.unpack_from(data, REST_AT)
        moved = MOVED.unpack_from(data, BYTES.size)
        self.residency_bytes, self.moved_count, self.moved_bytes = moved[:4], moved[4::2], moved[5::2]
        self.native = {}
        for i, name in enumerate(NATIVE):
            self.native[name] = BYTES.unpack_from(data, NATIVE_AT + i * BYTES.size)[3]


class Page:
    """One process. `device` holds those that the process saw."""

    def __init__(self, data):
        (magic, version, size, self.pid, self.state, self.start, self.page_id, self.run_id, self.locked, _, role, comm,
         self.active, count, self.pool_bytes, self.pool_free_bytes, self.mismatches, self.mapped, self.by_name,
         self.unknown) = HEAD.unpack_from(data, 0)
        if magic != MAGIC or version != VERSION or size != len(data) or size != HEAD.size + DEVICES * DEVICE_BYTES:
            raise ValueError("not a stats page of version %d: raise this reader's version with the header's" % VERSION)
        self.comm = comm.split(b"\0")[0].decode()
        self.device = [Device(data[HEAD.size + i * DEVICE_BYTES:][:DEVICE_BYTES]) for i in range(count)]

    def managed(self):
        return sum(d.managed_total for d in self.device)

    def peak(self):
        return sum(d.managed_peak for d in self.device)

    def live(self):
        return sum(d.managed_bytes for d in self.device)

    def native(self):
        """Kind -> allocations ever, of the kinds that had any."""
        sums = {name: sum(d.native[name] for d in self.device) for name in NATIVE}
        return {name: total for name, total in sums.items() if total}


def read(session):
    """The pages of a session, in the order their processes started."""
    found = []
    for path in glob.glob(os.path.join(session, "proc-*.stats")):
        with open(path, "rb") as file:
            found.append(Page(file.read()))
    return sorted(found, key=lambda page: (page.start, page.pid))
