#!/bin/bash
#SBATCH -N 4
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=18
#SBATCH -p gh
module load cuda/12.8
source ~/envs/lit/bin/activate
srun python train_imagenet_vit.py --devices 4 --num_nodes 4 --workers 16 --batch 256
