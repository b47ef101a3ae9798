"""Training many networks on one device, each bit for bit as if it were alone."""
