"""The version of this distribution (its only definition), and the default images of components."""

__version__ = "0.2.0"

TORCHX_IMAGE = "pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime"
"""The default image of components that need PyTorch or the packages it brings; from Docker Hub."""

PYTHON_IMAGE = "python:3.12-slim"
"""The default image of components that need a shell or plain Python, and little to download."""
