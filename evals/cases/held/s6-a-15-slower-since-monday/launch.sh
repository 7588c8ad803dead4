#!/bin/bash
#SBATCH -N 4 --gpus-per-node=8 --exclusive -t 48:00:00
module load cuda/12.8 openmpi
source /proj/env-2026-05/bin/activate     # new env since Monday
export NCCL_SOCKET_IFNAME=ib0 NCCL_IB_HCA=mlx5 OMP_NUM_THREADS=8
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
srun torchrun --nnodes=4 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=$HEAD:29500 -m torchtitan.train --job.config_file moe.toml --metrics.log_freq 1
