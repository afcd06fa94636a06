// The own time of the batch that is being planned, in milliseconds: the one that Spark wrote into the offset log before
// it planned the batch, and so the same when it runs again. Asked on the driver, by the optimizer, in the thread of the
// query (planned_data.py). Outside of a query it is the clock's time.

public Object generate(Object[] references) {
  return new BatchTime();
}

final class BatchTime implements java.util.function.LongSupplier {
  public long getAsLong() {
    try {
      RunningBatch batch = RunningBatch.get();
      if (batch == null) return System.currentTimeMillis();
      return ((Number) RunningBatch.call(batch.ask("offsetSeqMetadata"), "batchTimestampMs")).longValue();
    } catch (Throwable problem) {
      return Long.MIN_VALUE; // no plan holds then, and every row is kept
    }
  }
}
