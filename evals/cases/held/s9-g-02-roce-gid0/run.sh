#!/bin/bash
# run.sh  -- copied from the A100/IB cluster, worked there for months
export NCCL_DEBUG=INFO
export NCCL_SOCKET_IFNAME=bond0
export NCCL_IB_HCA=mlx5
export NCCL_IB_GID_INDEX=0
export NCCL_IB_TIMEOUT=22
export NCCL_IB_RETRY_CNT=7
torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=trn-07:29400 --tee 3 train_fsdp2.py --config 7b.yaml
