"""Collectives that take no time worth speaking of."""

import time


class ReduceOp:
    MAX = "max"


_world = {"size": 1}


def init_process_group(_backend, init_method, rank, world_size, timeout, device_id):
    _world["size"] = world_size


def get_world_size():
    return _world["size"]


def all_reduce(block, op=None):
    time.sleep(0.0001)


def barrier():
    return None


def broadcast(block, src):
    return None


def destroy_process_group():
    return None
