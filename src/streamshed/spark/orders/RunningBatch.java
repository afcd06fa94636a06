
// The batch that is being planned in this thread, by the running query's own books. On the driver only. A part of the
// code of BatchTime.java and LongBatch.java.

static final class RunningBatch {
  private static final String QUERY = "sql.streaming.queryId";

  final String query; // its id
  final Object execution;
  private final Object context;

  private RunningBatch(String query, Object execution) {
    this.query = query;
    this.execution = execution;
    context = context(execution);
  }

  // Null outside of a query.
  static RunningBatch get() {
    org.apache.spark.sql.classic.SparkSession session = org.apache.spark.sql.classic.SparkSession.active();
    String query = session.sparkContext().getLocalProperty(QUERY);
    if (query == null) return null;
    return new RunningBatch(query, session.sharedState().activeStreamingQueries().get(java.util.UUID.fromString(query)));
  }

  Object ask(String method) throws Exception {
    return call(context, method);
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
  static Object call(Object owner, String method) throws Exception {
    java.lang.reflect.Method found = owner.getClass().getMethod(method, new Class[0]);
    found.setAccessible(true);
    return found.invoke(owner, new Object[0]);
  }
}
