"""The paper's tables, and how its rows are reproduced."""
