// Counts, in one task, the rows that came to each arc of a network and that passed it. See arc_counts.py.

public Object generate(Object[] references) {
  return new ArcCounts(references);
}

final class ArcCounts implements java.util.function.LongBinaryOperator {
  private final long[] counts; // those that came to each arc, then those that passed

  ArcCounts(Object[] references) {
    counts = new long[2 * ((Integer) references[0]).intValue()];
    // The accumulator holds on to the array: the driver gets what it is at the task's end.
    ((org.apache.spark.util.CollectionAccumulator) references[1]).add(counts);
  }

  // One bit for each arc.
  public long applyAsLong(long came, long passed) {
    add(0, came);
    add(counts.length / 2, passed);
    return 0L;
  }

  private void add(int first, long arcs) {
    while (arcs != 0) {
      counts[first + Long.numberOfTrailingZeros(arcs)]++;
      arcs &= arcs - 1;
    }
  }
}
