"""The report: one page for people, made from the tables of ``analyse``."""

from bccnd.pipeline.report.page import write

__all__ = ["write"]
