// What the tasks of a running batch have counted so far, as they tell it with their heartbeats. See task_arrays.py.
// Compiled on the driver by the compiler that Spark generates code with.

public Object generate(Object[] references) {
  return new RunningTasks(((Number) references[0]).longValue());
}

final class RunningTasks extends org.apache.spark.scheduler.SparkListener implements java.util.function.Supplier {
  private final long accumulator; // the arrays of tasks are in this one
  private final java.util.Map arrays = new java.util.concurrent.ConcurrentHashMap(); // by task

  RunningTasks(long accumulator) {
    this.accumulator = accumulator;
  }

  public void onExecutorMetricsUpdate(org.apache.spark.scheduler.SparkListenerExecutorMetricsUpdate heartbeat) {
    scala.collection.Iterator tasks = heartbeat.accumUpdates().iterator();
    while (tasks.hasNext()) {
      scala.Tuple4 task = (scala.Tuple4) tasks.next();
      scala.collection.Iterator updates = ((scala.collection.Iterable) task._4()).iterator();
      while (updates.hasNext()) {
        org.apache.spark.scheduler.AccumulableInfo update =
            (org.apache.spark.scheduler.AccumulableInfo) updates.next();
        if (update.id() == accumulator && update.update().isDefined()) {
          arrays.put(task._1(), update.update().get());
        }
      }
    }
  }

  public void onTaskEnd(org.apache.spark.scheduler.SparkListenerTaskEnd end) {
    arrays.remove(Long.valueOf(end.taskInfo().taskId()));
  }

  // The arrays of all tasks, each as a text.
  public Object get() {
    java.util.ArrayList texts = new java.util.ArrayList();
    java.util.Iterator held = arrays.values().iterator();
    while (held.hasNext()) {
      java.util.Iterator one = ((java.util.List) held.next()).iterator();
      while (one.hasNext()) texts.add(java.util.Arrays.toString((long[]) one.next()));
    }
    return texts;
  }
}
