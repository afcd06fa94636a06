// What the order in force has a batch keep, as two numbers: the least hash that goes, and the salt. See drop_order.py.
// Asked on the driver, by the optimizer, when a batch is planned.

public Object generate(Object[] references) {
  return new OrderInForce(references);
}

final class OrderInForce implements java.util.function.LongFunction {
  private final java.util.concurrent.atomic.AtomicReference orders; // a text: start, until, least hash and salt of each
  private final long all;

  OrderInForce(Object[] references) {
    orders = (java.util.concurrent.atomic.AtomicReference) references[0];
    all = ((Number) references[1]).longValue();
  }

  // The last order that had begun by then, if it has not ended.
  public Object apply(long batchTime) {
    long least = all, salt = 0;
    try {
      String[] lines = ((String) orders.get()).split(";");
      for (int at = lines.length - 1; at >= 0; at--) {
        String[] numbers = lines[at].split(" ");
        if (numbers.length < 4 || Long.parseLong(numbers[0]) > batchTime) continue;
        if (batchTime < Long.parseLong(numbers[1])) {
          salt = Long.parseLong(numbers[3]);
          long said = Long.parseLong(numbers[2]);
          least = said < 0 ? all : said;
        }
        break;
      }
    } catch (RuntimeException problem) {
      // Nobody can tell what holds: every row is kept.
    }
    return org.apache.spark.sql.catalyst.expressions.UnsafeArrayData.fromPrimitiveArray(new long[] {least, salt});
  }
}
