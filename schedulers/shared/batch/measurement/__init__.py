"""CPU and memory of the replicas of a batch job: measured on the nodes, read from the folder of the job."""
