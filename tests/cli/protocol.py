"""tests/cli/protocol.py
The protocol of a session spoken by hand, so that it can be spoken wrong, and without a command around it. The layout is that of
lifecycle/protocol.h; numbers that change with it are read there."""
import array
import os
import re
import socket
import struct

LIFECYCLE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "lifecycle")
HEADER = struct.Struct("<IHHIIQ")
CLIENT, CONTROL = 1, 2
SERVED_HEAD, SERVED_TEXT = 72, 256  # struct message_served: bytes up to its text, and of that
DEVICES = struct.pack("<264x")  # struct message_devices: none
NEEDS = DEVICES + struct.pack("<672x")  # struct message_needs: of none


def _text_of_file(name):
    with open(os.path.join(LIFECYCLE, name), encoding="utf-8") as file:
        return file.read()


def _number(name):
    return int(re.search(r"^#define %s (0x[0-9a-f]+|\d+)u" % name, _text_of_file("protocol.h"), re.M).group(1), 0)


MAGIC, VERSION = _number("PROTOCOL_MAGIC"), _number("PROTOCOL_VERSION")
TYPES = {name: number for number, name in enumerate(re.findall(r"^MESSAGE\((\w+),", _text_of_file("protocol.def"), re.M), 1)}
NAMES = {number: name for name, number in TYPES.items()}


def message(kind, body=b"", serial=1, magic=MAGIC, version=VERSION, length=None):
    number = TYPES[kind] if isinstance(kind, str) else kind
    return HEADER.pack(magic, version, number, HEADER.size + len(body) if length is None else length, 0, serial) + body


def hello(peer=CONTROL, host_bytes=0, role=b"", command=b"by hand", without_gpu=0):
    return message("HELLO", struct.pack("<IiQ68s64sI", peer, os.getpid(), host_bytes, role, command, without_gpu))


def ask_phase(phase, serial, timeout_ns=0):
    """@phase: its number in the policy."""
    return message("ASK_PHASE", struct.pack("<IIQ", phase, 0, timeout_ns) + DEVICES, serial)


class Peer:
    """A connection of our own."""

    def __init__(self, session):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        folder = os.open(session, os.O_PATH)
        self.socket.connect("/proc/self/fd/%d/socket" % folder)
        os.close(folder)

    def send(self, data, fds=()):
        self.socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])

    def receive(self):
        """(name, body, descriptors); ("END OF CONNECTION", b"", []) when the other side has closed."""
        data, ancillary, _, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(64))
        if not data:
            return "END OF CONNECTION", b"", []
        fds = array.array("i")
        for _, _, part in ancillary:
            fds.frombytes(part)
        return NAMES[HEADER.unpack_from(data)[2]], data[HEADER.size:], list(fds)

    def join(self, **words):
        self.send(hello(**words))
        name, body, fds = self.receive()
        assert name == "WELCOME", (name, body)
        return body, fds

    def close(self):
        self.socket.close()
