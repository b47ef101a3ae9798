"""Input and output: untrusted files, atomic writes, locks, manifests, progress bars."""
