"""Names and calls of TorchX 0.7.0 that other packages use; modules at the former places re-export them."""
