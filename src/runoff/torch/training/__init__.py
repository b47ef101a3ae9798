"""Training of many networks on one device, each with the same bits as if trained by itself."""
