"""What did Slurm or Kubernetes do to the job, and why?"""
