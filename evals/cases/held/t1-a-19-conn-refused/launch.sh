#!/bin/bash
# launch.sh  (run on both)
export NCCL_DEBUG=INFO
export NCCL_SOCKET_IFNAME=docker0
export GLOO_SOCKET_IFNAME=ens5
torchrun --nnodes 2 --nproc-per-node 4 --node-rank $1 --master-addr 10.30.0.4 --master-port 29500 ddp.py
# ip -br a (w0):  ens5 UP 10.30.0.4/20 ; docker0 UP 172.17.0.1/16
# ip -br a (w1):  ens5 UP 10.30.0.5/20 ; docker0 UP 172.17.0.1/16
