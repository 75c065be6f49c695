# SPDX-License-Identifier: Apache-2.0
"""A client of the Kubernetes container runtime interface, as far as cri.py asks: messages are written and read field by
field, by the numbers that the interface gives them (runtime.v1)."""
import grpc

SERVICE = "/runtime.v1.RuntimeService/"
POD, CONTAINER, NODE, TARGET = range(4)  # NamespaceMode
CREATED, RUNNING, EXITED = range(3)      # ContainerState
READY = 0                                # PodSandboxState


def varint(v):
    out = bytearray()
    v &= (1 << 64) - 1
    while v > 127:
        out.append(v & 127 | 128)
        v >>= 7
    out.append(v)
    return bytes(out)


def encode(fields):
    """{number: value} as a message: ints, texts, bytes, messages (dicts), lists of these, maps ({"text": "text"})."""
    out = b""
    for number, value in fields.items():
        if isinstance(value, dict) and value and all(isinstance(k, str) for k in value):
            value = [{1: k, 2: v} for k, v in value.items()]
        for v in value if isinstance(value, list) else [value]:
            if isinstance(v, int):
                out += varint(number << 3) + varint(int(v))
                continue
            data = v.encode() if isinstance(v, str) else encode(v) if isinstance(v, dict) else v
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def read_varint(data, at):
    v = shift = 0
    while True:
        v |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return v, at


def decode(data):
    """{number: [values]} of a message: ints, and bytes for all that has a length."""
    fields, at = {}, 0
    while at < len(data):
        key, at = read_varint(data, at)
        kind = key & 7
        if kind == 0:
            v, at = read_varint(data, at)
        elif kind == 2:
            n, at = read_varint(data, at)
            v, at = data[at:at + n], at + n
        else:
            n = {1: 8, 5: 4}[kind]
            v, at = int.from_bytes(data[at:at + n], "little"), at + n
        fields.setdefault(key >> 3, []).append(v)
    return fields


def first(data, *path, default=b""):
    """The field that numbers lead to, through messages."""
    for number in path[:-1]:
        data = decode(data).get(number, [b""])[0]
    return decode(data).get(path[-1], [default])[0]


class Client:
    def __init__(self, sock):
        self.channel = grpc.insecure_channel("unix://" + sock)

    def call(self, method, fields, timeout=60):
        """The response's bytes; grpc.RpcError says what containerd complains of."""
        fn = self.channel.unary_unary(SERVICE + method, request_serializer=bytes, response_deserializer=bytes)
        return fn(encode(fields), timeout=timeout)

    def run_pod(self, config, handler=""):
        return first(self.call("RunPodSandbox", {1: config, 2: handler}), 1).decode()

    def pod_state(self, pod):
        return first(self.call("PodSandboxStatus", {1: pod}), 1, 3, default=0)

    def stop_pod(self, pod):
        self.call("StopPodSandbox", {1: pod})

    def remove_pod(self, pod):
        self.call("RemovePodSandbox", {1: pod})

    def pods(self):
        return [first(p, 1).decode() for p in decode(self.call("ListPodSandbox", {})).get(1, [])]

    def create(self, pod, config, pod_config):
        return first(self.call("CreateContainer", {1: pod, 2: config, 3: pod_config}), 1).decode()

    def start(self, cid):
        self.call("StartContainer", {1: cid})

    def stop(self, cid, timeout=2):
        self.call("StopContainer", {1: cid, 2: timeout})

    def remove(self, cid):
        self.call("RemoveContainer", {1: cid})

    def status(self, cid):
        """(state, exit code, reason)"""
        s = first(self.call("ContainerStatus", {1: cid}), 1)
        return first(s, 3, default=0), first(s, 7, default=0), first(s, 10).decode()

    def exec_sync(self, cid, *cmd, timeout=30):
        """(exit code, stdout, stderr)"""
        r = self.call("ExecSync", {1: cid, 2: list(cmd), 3: timeout})
        return first(r, 3, default=0), first(r, 1).decode(), first(r, 2).decode()

    def exec_url(self, cid, *cmd):
        return first(self.call("Exec", {1: cid, 2: list(cmd), 3: 0, 5: 1, 6: 1}), 1).decode()

    def forward_url(self, pod, port):
        return first(self.call("PortForward", {1: pod, 2: port}), 1).decode()

    def stats(self, cid):
        """(nanoseconds of CPU, bytes)"""
        s = first(self.call("ContainerStats", {1: cid}), 1)
        return first(s, 2, 2, 1, default=0), first(s, 3, 2, 1, default=0)

    def limit(self, cid, memory):
        self.call("UpdateContainerResources", {1: cid, 2: {4: memory}})
