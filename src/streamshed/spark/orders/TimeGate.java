// The clock of one task: whether a row comes before its batch's time is used up. See batch_clock.py, which says what the
// numbers mean. Made by a task at its first row; times are milliseconds.

public Object generate(Object[] references) {
  return new TimeGates(((Boolean) references[0]).booleanValue(),
      (org.apache.commons.lang3.mutable.MutableLong) ((Object[]) references[1])[0]);
}

final class TimeGates implements java.util.function.BiFunction {
  private final boolean absolute;
  private final org.apache.commons.lang3.mutable.MutableLong unasked;

  TimeGates(boolean absolute, org.apache.commons.lang3.mutable.MutableLong unasked) {
    this.absolute = absolute;
    this.unasked = unasked;
  }

  // line: until, budget, grace, floor, stride. planned: when the batch was, alone in an array.
  public Object apply(Object line, Object planned) {
    try {
      String[] numbers = line.toString().split(" ");
      long now = ((org.apache.spark.sql.catalyst.util.ArrayData) planned).getLong(0);
      long budget = Long.parseLong(numbers[1]);
      if (budget >= 0 && now < Long.parseLong(numbers[0])) {
        return new TimeGate(unasked, absolute ? budget : now + budget, ofTask(Long.parseLong(numbers[2])),
            Long.parseLong(numbers[3]), Long.parseLong(numbers[4]));
      }
    } catch (RuntimeException problem) {
      // Nobody can tell what holds: every row passes.
    }
    return new TimeGate(unasked, Long.MAX_VALUE, Long.MAX_VALUE, 0, Long.MAX_VALUE);
  }

  // Only the task knows among how many the rows of its batch are divided: nobody did when the batch was planned.
  private static long ofTask(long rows) {
    org.apache.spark.TaskContext task = org.apache.spark.TaskContext.get();
    long tasks = task == null ? 1 : Math.max(1, task.numPartitions());
    return (rows + tasks - 1) / tasks;
  }
}

final class TimeGate implements java.util.function.BooleanSupplier {
  private static final long PARTS = 1000000; // of a whole: the floor is a whole number of them

  private final org.apache.commons.lang3.mutable.MutableLong unasked;
  private final long deadline, grace, floor, stride;
  private long rows = 0; // up to the next look at the clock
  private long late = 0; // of these, the ones that are yet to come, if the time is used up

  TimeGate(
      org.apache.commons.lang3.mutable.MutableLong unasked, long deadline, long grace, long floor, long stride) {
    this.unasked = unasked;
    this.deadline = deadline;
    this.grace = grace;
    this.floor = floor;
    this.stride = stride;
  }

  public boolean getAsBoolean() {
    if (late == 0) {
      boolean over = rows >= grace && System.currentTimeMillis() >= deadline;
      rows += stride;
      if (!over) {
        unasked.setValue(stride); // this row and the next ones; the generated code counts them down
        return true;
      }
      late = stride;
    }
    late--;
    return (rows - late) * floor % PARTS < floor;
  }
}
