"""Looks up once the Java classes and functions that pyspark asks for with each column.

A column is three questions to Java: where ``functions`` is, whether it has ``col``, and for the column. For the
first, Java takes the name for a class, then for one of each package that is imported, and goes through all jars each
time; a plan is thousands of columns. The answers to the first two never change while Java runs. pyspark has no public
interface to them.
"""

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember  # type: ignore[import-untyped]

CLASSES = (
    "functions",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.expressions.Window",
    "PythonUtils",
    "PythonSQLUtils",
)


class _Remembering(JavaClass):  # type: ignore[misc]
    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            self.__dict__[name] = found
        return found


def remember(jvm: Any) -> None:
    """Have ``jvm``, a view of py4j, know CLASSES as far as they exist."""
    for name in CLASSES:
        found = getattr(jvm, name)
        if isinstance(found, JavaClass):
            setattr(jvm, name, _Remembering(found._fqn, found._gateway_client))  # noqa: SLF001 - nothing else has them
