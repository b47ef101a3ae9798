"""The paper's tables, and the reproduction of their rows."""
