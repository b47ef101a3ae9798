"""Files and locks: read without trusting them, written whole or not at all."""
