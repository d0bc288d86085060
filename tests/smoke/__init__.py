"""A short run through the whole command line, for environments that hold nothing but torchx itself."""
