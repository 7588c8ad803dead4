#!/bin/bash
#SBATCH -N 4 --ntasks-per-node=1 --gpus-per-node=8 --exclusive
#SBATCH -J fw-7b
# stage data to node local nvme, lustre was too slow for random reads
srun --ntasks-per-node=1 bash -c 'rsync -a /lustre/data/fw_text_document.{bin,idx} /scratch/local/'
srun bash -c 'torchrun --nnodes 4 --nproc-per-node 8 --node-rank $SLURM_NODEID --master-addr wn-01 --master-port 6000 \
   pretrain_gpt.py $ARGS --data-path /scratch/local/fw_text_document --data-cache-path /scratch/local/cache'
# df on wn-03:
#   /dev/md0  14T  1.9T  12T  14% /scratch/local      (xfs, node local)
