#!/bin/bash
# was: NNODES=1 (8 GPUs) through step 6000
export NNODES=2 NGPU=8
export CONFIG_FILE=llama3_8b.toml
torchrun --nnodes=$NNODES --nproc_per_node=$NGPU --rdzv_backend c10d --rdzv_endpoint=node01:29500 -m torchtitan.train --job.config_file $CONFIG_FILE --checkpoint.enable --training.local_batch_size 4
