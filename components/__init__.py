"""The built-in components; ``torchx builtins`` lists them, ``torchx builtins --print NAME`` shows one."""
