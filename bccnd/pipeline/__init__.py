"""Where Apache Spark looks at what hosts recorded (``bccnd-pipeline``)."""
