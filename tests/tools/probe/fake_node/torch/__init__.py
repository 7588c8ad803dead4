"""Stands in for torch on a node without GPUs: enough of it for the kit's flow, no arithmetic.

Time per call comes from FAKE_SECONDS (one number a device), so that a slow card can be planted.
FAKE_HANG names a device whose first copy never ends, FAKE_FAIL one whose products raise.
"""

import os
import time

bfloat16, float16, float32, float64, uint8, int32 = "bf16", "fp16", "fp32", "fp64", "u8", "i32"
__version__ = "0.0-standin"


class OutOfMemoryError(RuntimeError):
    pass


def _seconds(device):
    each = os.environ.get("FAKE_SECONDS", "0.001,0.001").split(",")
    return float(each[device % len(each)])


def _index(device):
    return int(str(device).rpartition(":")[2] or 0) if device is not None else 0


class Tensor:
    def __init__(self, count, device=None, value=0):
        self.count, self.device, self.value = count, _index(device), value

    def __ne__(self, other):
        return Tensor(1, self.device, int(self.value != other))

    def __hash__(self):
        return id(self)

    def sum(self):
        return self

    def item(self):
        return self.value

    def fill_(self, value):
        self.value = value
        return self

    def copy_(self, _other, non_blocking=False):
        if os.environ.get("FAKE_HANG") == str(self.device):
            time.sleep(600)
        cuda.clock += _seconds(self.device)
        return self

    def numel(self):
        return self.count


def empty(*shape, dtype=None, device=None, pin_memory=False):
    return Tensor(shape[0], device)


def ones(*shape, dtype=None, device=None):
    return Tensor(1, device, 1)


def zeros(*shape, dtype=None, device=None):
    return Tensor(shape[0], device)


def randn(*shape, dtype=None, device=None):
    return Tensor(shape[0], device)


def tensor(values, dtype=None, device=None):
    return Tensor(1, device, values[0])


def empty_like(other):
    return Tensor(other.count, other.device)


def mm(left, right, out=None):
    if os.environ.get("FAKE_FAIL") == str(left.device):
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    cuda.clock += _seconds(left.device)
    return out


class device:
    def __init__(self, kind, index=0):
        self.index = index


class _Event:
    def __init__(self, enable_timing=False):
        self.at = 0.0

    def record(self):
        self.at = cuda.clock

    def elapsed_time(self, other):
        return (other.at - self.at) * 1e3


class _Device:
    def __init__(self, index):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class _Cuda:
    clock = 0.0
    Event = _Event
    device = _Device
    OutOfMemoryError = OutOfMemoryError

    def synchronize(self, device=None):
        time.sleep(0.0005)

    def mem_get_info(self, device):
        return 8 * 1024**3, 141 * 1024**3

    def get_device_name(self, device):
        return "NVIDIA H200"

    def get_device_capability(self, device):
        return (8, 0)

    def can_device_access_peer(self, one, other):
        return True

    def empty_cache(self):
        return None

    def set_device(self, device):
        return None


cuda = _Cuda()


class _Matmul:
    allow_tf32 = False


class backends:
    class cuda:
        matmul = _Matmul


class version:
    cuda = "13.0"


from . import distributed  # noqa: E402, F401
