// The clock of one task: whether a row comes before its batch's time is used up. See batch_clock.py, which says what the
// numbers mean. Made by a task at its first row; times are milliseconds.

public Object generate(Object[] references) {
  return new TimeGates(((Boolean) references[0]).booleanValue());
}

final class TimeGates implements java.util.function.BiFunction {
  private final boolean absolute;

  TimeGates(boolean absolute) {
    this.absolute = absolute;
  }

  // line: until, budget, grace, floor, stride. planned: when the batch was, alone in an array.
  public Object apply(Object line, Object planned) {
    try {
      String[] numbers = line.toString().split(" ");
      long now = ((org.apache.spark.sql.catalyst.util.ArrayData) planned).getLong(0);
      long budget = Long.parseLong(numbers[1]);
      if (budget >= 0 && now < Long.parseLong(numbers[0])) {
        return new TimeGate(absolute ? budget : now + budget, Long.parseLong(numbers[2]), Long.parseLong(numbers[3]),
            Long.parseLong(numbers[4]) - 1);
      }
    } catch (RuntimeException problem) {
      // Nobody can tell what holds: every row passes.
    }
    return new TimeGate(Long.MAX_VALUE, Long.MAX_VALUE, 0, Long.MAX_VALUE);
  }
}

final class TimeGate implements java.util.function.BooleanSupplier {
  private static final long PARTS = 1000000; // of a whole: the floor is a whole number of them

  private final long deadline, grace, floor, mask;
  private long rows = 0;
  private boolean over = false;

  TimeGate(long deadline, long grace, long floor, long mask) {
    this.deadline = deadline;
    this.grace = grace;
    this.floor = floor;
    this.mask = mask;
  }

  public boolean getAsBoolean() {
    long before = rows++;
    if ((before & mask) == 0) over = rows > grace && System.currentTimeMillis() >= deadline;
    return !over || rows * floor % PARTS < floor;
  }
}
