"""Sources beside the stacks that name the ranks of a stalled collective: PyTorch's flight recorder, NCCL."""
