// The own time of the batch that is being planned, in milliseconds: the one that Spark wrote into the offset log before
// it planned the batch, and so the same when it runs again. Asked on the driver, by the optimizer, in the thread of the
// query (planned_data.py). Outside of a query it is the clock's time.

public Object generate(Object[] references) {
  return new BatchTime();
}

final class BatchTime implements java.util.function.LongSupplier {
  private static final String QUERY = "sql.streaming.queryId";

  public long getAsLong() {
    try {
      org.apache.spark.sql.classic.SparkSession session = org.apache.spark.sql.classic.SparkSession.active();
      String query = session.sparkContext().getLocalProperty(QUERY);
      if (query == null) return System.currentTimeMillis();
      Object execution = session.sharedState().activeStreamingQueries().get(java.util.UUID.fromString(query));
      Object metadata = call(context(execution), "offsetSeqMetadata");
      return ((Number) call(metadata, "batchTimestampMs")).longValue();
    } catch (Throwable problem) {
      return Long.MIN_VALUE; // no plan holds then, and every row is kept
    }
  }

  // Spark 4.0 has the number of the batch and its time in the execution itself.
  private static Object context(Object execution) {
    try {
      return call(execution, "getLatestExecutionContext");
    } catch (Exception problem) {
      return execution;
    }
  }

  // By name: these classes have moved between versions of Spark.
  private static Object call(Object owner, String method) throws Exception {
    java.lang.reflect.Method found = owner.getClass().getMethod(method, new Class[0]);
    found.setAccessible(true);
    return found.invoke(owner, new Object[0]);
  }
}
