ray job submit -- python3 -m openrlhf.cli.train_ppo_ray \
  --actor_num_nodes 1 --actor_num_gpus_per_node 8 \
  --colocate_all_models \
  --vllm_num_engines 4 --vllm_tensor_parallel_size 2 \
  --vllm_sync_backend nccl \
  --vllm_gpu_memory_utilization 0.4 --zero_stage 3
