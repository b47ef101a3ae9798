"""Reports on certified ensembles: one HTML page that opens offline, and figures for a paper."""

from runoff.report._collect import collect
from runoff.report._html import page, write
from runoff.report.source import Source

__all__ = ["Source", "collect", "page", "write"]
