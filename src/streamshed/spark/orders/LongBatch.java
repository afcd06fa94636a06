// Whether the batch that is being planned may run long: only then is its clock in the plan. See batch_clock.py, which says
// why. Asked on the driver, by the optimizer, in the thread of the query. What nobody can tell may run long.

public Object generate(Object[] references) {
  return new LongBatch();
}

static final class LongBatch implements java.util.function.Predicate {
  private final java.util.Map pasts = new java.util.concurrent.ConcurrentHashMap(); // by query

  // line: until, budget, grace, floor, stride.
  public boolean test(Object line) {
    try {
      long budget = Long.parseLong(line.toString().split(" ")[1]);
      RunningBatch batch = RunningBatch.get();
      if (batch == null) return true;
      PastBatches past = (PastBatches) pasts.get(batch.query);
      if (past == null) pasts.put(batch.query, past = new PastBatches());
      return past.runsLong(batch, budget);
    } catch (Throwable problem) {
      return true;
    }
  }
}

// What is known of the batches of one query.
static final class PastBatches {
  private static final double EASE = 0.1; // of the budget: a batch that takes no longer by the pace of others is short
  private static final double FADES = 0.7; // of the pace, from batch to batch
  private static final java.util.regex.Pattern OFFSET = java.util.regex.Pattern.compile(":\\s*(\\d+)");

  private long number = -1; // of the batch that was asked about last
  private long size;
  private double pace = Double.NaN; // milliseconds for one of size

  synchronized boolean runsLong(RunningBatch batch, long budget) throws Exception {
    long now = ((Number) batch.ask("batchId")).longValue();
    if (now != number) { // it is asked several times
      learn(batch);
      number = now;
      size = -1; // unless it can be told
      size = size((scala.collection.Map) batch.ask("newData"));
    }
    return !(size >= 0 && size * pace <= EASE * budget);
  }

  // How long the batch before took, if it is the one that was asked about.
  private void learn(RunningBatch batch) throws Exception {
    Object progress = RunningBatch.call(batch.execution, "lastProgress");
    if (progress == null || size <= 0) return;
    if (((Number) RunningBatch.call(progress, "batchId")).longValue() != number) return;
    Object took = ((java.util.Map) RunningBatch.call(progress, "durationMs")).get("triggerExecution");
    double last = ((Number) took).doubleValue() / size;
    pace = Double.isNaN(pace) ? last : Math.max(last, FADES * pace);
  }

  // Of what the one source gave: bytes of files, or Kafka's offsets; -1 if nobody knows.
  private static long size(scala.collection.Map given) throws Exception {
    if (given.size() != 1) return -1;
    scala.Tuple2 only = (scala.Tuple2) given.head();
    if (only._1().getClass().getName().indexOf("Kafka") >= 0) {
      return offsets(only._2(), "end") - offsets(only._2(), "start");
    }
    if (only._1().getClass().getName().indexOf("FileStreamSource") < 0) return -1;
    Object bytes = RunningBatch.call(RunningBatch.call(only._2(), "stats"), "sizeInBytes");
    return ((Number) bytes).longValue();
  }

  private static long offsets(Object holder, String which) throws Exception {
    Object offset = RunningBatch.call(holder, which);
    if (offset instanceof scala.Option) offset = ((scala.Option) offset).get(); // as newer versions of Spark have it
    java.util.regex.Matcher numbers = OFFSET.matcher((String) RunningBatch.call(offset, "json"));
    long sum = 0;
    while (numbers.find()) sum += Long.parseLong(numbers.group(1));
    return sum;
  }
}
