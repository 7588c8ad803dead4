torchrun --nnodes 16 --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --micro-batch-size 2 --global-batch-size 1024 \
  --lr 2.8e-3 --min-lr 2.8e-5 --lr-decay-style cosine --lr-warmup-iters 0 --train-iters 60000 --clip-grad 1.0 --bf16 \
  --load /ckpt/7b --override-opt_param-scheduler
