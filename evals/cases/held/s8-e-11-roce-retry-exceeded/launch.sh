#!/bin/bash
# new image 26.07, env block rewritten 2026-08-07 (old: NCCL_IB_GID_INDEX=3 NCCL_IB_TC=106 NCCL_IB_TIMEOUT=22)
export NCCL_DEBUG=INFO
export NCCL_IB_HCA=mlx5
export NCCL_IB_GID_INDEX=3
export NCCL_IB_TIMEOUT=20
srun torchrun --nnodes 4 --nproc_per_node 8 train.py
