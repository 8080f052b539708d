"""``bccnd/pipeline/layout.py``."""

from pyspark.sql.types import StructType

from bccnd.pipeline.layout import RECORDED, REJECTED_FILES, TABLES, TRAFFIC, Output


def test_traffic_keeps_all_recorded_columns(spark: object) -> None:
    for schema in (*TABLES.values(), REJECTED_FILES):
        assert StructType.fromDDL(schema).fields
    recorded, traffic = StructType.fromDDL(RECORDED), StructType.fromDDL(TRAFFIC)
    assert set(recorded.fieldNames()) < set(traffic.fieldNames())
    assert all(traffic[field.name] == field for field in recorded.fields)


def test_paths_may_be_of_other_file_systems() -> None:
    assert Output("hdfs:///network/").batch(7) == "hdfs:///network/traffic/batch=7"
    assert Output("out").tables == "out/tables"
