// The rule of the age ladder for one task, and its books. See ladder_rule.py, which says what goes in and comes out,
// and age_ladder.py, which says why. Compiled on every executor by the compiler that Spark generates code with.
// Times are milliseconds.

public Object generate(Object[] references) {
  return new LadderRule(references);
}

final class LadderRule implements java.util.function.LongBinaryOperator, java.util.function.LongFunction {
  // What is in force: version, mode, lowest rung, interval, bound, then for each class the least hash that passes
  // at any age, then the limits by class and rung.
  private static final int VERSION = 0, MODE = 1, LOWEST = 2, INTERVAL = 3, BOUND = 4, SHARES = 5;
  private static final int LOOK_EVERY = 100; // between two looks at what is in force
  private static final int NEW = 20000; // for so long a task is new, at most
  private static final int WARM = 10000; // rows that passed: a task that let so many through is not new any more
  private static final int COLD = 1000; // without a row that is young enough, while a task is new
  private static final int HOPELESS = 2000; // the same, later
  private static final int REMEMBERED = 1000; // over which it is reckoned what a task's time goes into
  private static final int EMPTY = 5; // intervals without a row: the queue was empty
  private static final int STALL = 4; // a quarter of an interval between two rows: the task stood still
  private static final int PATIENCE = 10; // bounds that a queue is given to get short by itself
  private static final int WAITING = 2; // half the age of the lowest rung: a row as old as that waits for the task

  private final int stream; // whose control it is
  private final int classes;
  private final int rungs;
  private final boolean walks; // whether rungs are rows of a road map, of which the answer is the one in force
  private final java.util.concurrent.atomic.AtomicLongArray clock; // in place of the machine's own, with nanoseconds
  // in its second place where costs are learned; or null
  private final int bins;
  private final double least;
  private final double ratio;
  private final int firstClass;
  private final long[] counts;
  private final LearnedCosts costs; // or null
  private long[] table;
  private boolean begun = false;
  private boolean passed = true; // whether the row before did
  private boolean standing = false; // whether the queue was found to stand: rows go until it is gone
  private long looked, now, before, since, work, waste, start, young;
  private long stood; // when it last ceased to
  private long seen, aged; // the last row with an age: when it came, and how old it was
  private long old, ran, fell; // since `since`: how long rows were old, the task ran, and by how much ages fell
  private boolean timed = false; // whether the row before passed, so that its work is what the time went into
  private long entered, left; // when this row came, and the row before went on to its work: nanoseconds
  private long digest, digestBefore; // of their cost keys
  private double height; // what this row is worth, or chance: 0 ... 1

  LadderRule(Object[] references) {
    stream = ((Integer) references[0]).intValue();
    table = numbers((byte[]) ((java.util.concurrent.atomic.AtomicReference) references[1]).get());
    classes = ((Integer) references[2]).intValue();
    rungs = ((Integer) references[3]).intValue();
    bins = ((Integer) references[4]).intValue();
    least = ((Double) references[5]).doubleValue();
    ratio = Math.log(((Double) references[6]).doubleValue());
    clock = (java.util.concurrent.atomic.AtomicLongArray) references[8];
    walks = ((Boolean) references[9]).booleanValue();
    costs = references[10] == null ? null : new LearnedCosts(numbers((byte[]) references[10]));
    firstClass = 8 + bins;
    counts = new long[firstClass + classes * (1 + rungs)];
    // The accumulator holds on to the array: the driver gets what it is at the task's end.
    ((org.apache.spark.util.CollectionAccumulator) references[7]).add(counts);
  }

  private static long[] numbers(byte[] bytes) {
    long[] result = new long[bytes.length / 8];
    java.nio.ByteBuffer.wrap(bytes).order(java.nio.ByteOrder.LITTLE_ENDIAN).asLongBuffer().get(result);
    return result;
  }

  // The rule for a row whose cost is learned; it is asked at once, for this row. costed: the digest of its cost key in
  // the 31 low bits, all of them set if it has none, and its height on the ladder in the 32 above.
  public Object apply(long costed) {
    entered = nanos();
    digest = costed & 0x7fffffffL;
    height = (costed >>> 31) / 4294967296.0;
    return this;
  }

  private long nanos() {
    return clock == null ? System.nanoTime() : clock.get(1);
  }

  // arrived: when the row did, Long.MIN_VALUE if nobody knows. row: its hash in the 53 low bits, its rung over all
  // classes in the 9 above, then whether it is protected. The answer: 0 it passes, 1 it would go, 2 it goes.
  // On a road map it is the number of its row that is in force for this row, from 1; 0: it passes everywhere.
  public long applyAsLong(long arrived, long row) {
    boolean dated = arrived != Long.MIN_VALUE;
    if (timed && dated && arrived <= now - table[LOWEST] / WAITING) costs.add(digestBefore, entered - left);
    tick();
    if (walks) return walk(arrived, row);
    long hash = row & ((1L << 53) - 1);
    int rung = (int) (row >>> 53) & 511;
    if (costs != null) rung = rung / rungs * rungs + step();
    boolean isProtected = (row >>> 62) != 0;
    long age = dated ? now - arrived : 0L;
    boolean late = table[MODE] != 0 && dated && isLate(age, rung, hash) && !isProtected;
    boolean falls = late && table[MODE] == 2;
    passed = !falls;
    count(rung, dated, age, late, falls);
    if (costs != null) {
      timed = passed;
      digestBefore = digest;
      left = nanos();
    }
    return falls ? 2L : late ? 1L : 0L;
  }

  // The rung of a row within its class, by what it is learned to cost.
  private int step() {
    double cost = costs.relative(digest);
    return Math.min(rungs - 1, (int) ((cost == 1.0 ? height : Math.pow(height, cost)) * rungs));
  }

  private long walk(long arrived, long hash) {
    boolean dated = arrived != Long.MIN_VALUE;
    long age = dated ? now - arrived : 0L;
    boolean late = table[MODE] != 0 && dated && isStanding(age) && hash < table[SHARES] && !isWasteful();
    int cursor = late ? reached(age) : 0;
    boolean falls = cursor == rungs && table[MODE] == 2; // nothing but what is protected passes there
    passed = !falls;
    count(Math.max(0, cursor - 1), dated, age, cursor > 0, falls);
    return table[MODE] == 2 ? cursor : 0L;
  }

  // How many limits an age has come to.
  private int reached(long age) {
    int low = 0, high = rungs;
    while (low < high) {
      int middle = (low + high) >>> 1;
      if (age >= table[SHARES + 1 + middle]) low = middle + 1; else high = middle;
    }
    return low;
  }

  private void tick() {
    long time = clock == null ? System.currentTimeMillis() : clock.get(0);
    if (!begun) {
      begun = true;
      now = before = start = young = time;
    } else {
      before = now;
      now = time;
      if (passed) work += now - before; else waste += now - before;
      if (work + waste >= REMEMBERED) {
        work >>= 1;
        waste >>= 1;
      }
    }
    if (now - looked >= LOOK_EVERY) {
      looked = now;
      look();
    }
  }

  // Take over newer versions, if this process has them. Whatever goes wrong changes nothing.
  private void look() {
    try {
      while (true) {
        scala.Option found = org.apache.spark.util.collection.ExternalAppendOnlyMap.$lessinit$greater$default$5()
            .memoryStore().getBytes(org.apache.spark.storage.StreamBlockId.apply(stream, table[VERSION] + 1));
        if (found.isEmpty()) return;
        table = numbers(((org.apache.spark.util.io.ChunkedByteBuffer) found.get()).toArray());
      }
    } catch (Exception problem) {
      return;
    }
  }

  private boolean isLate(long age, int rung, long hash) {
    return isStanding(age) && age >= table[SHARES + classes + rung] && hash < table[SHARES + rung / rungs]
        && !isWasteful();
  }

  // Whether the queue stands: rows have been old for an interval, and it is not getting short by itself.
  private boolean isStanding(long age) {
    long gap = now - seen;
    long fall = aged - age;
    seen = now;
    aged = age;
    if (age < table[BOUND]) young = now;
    boolean isYoung = age < table[LOWEST];
    if (isYoung || since == 0 || gap >= EMPTY * table[INTERVAL]) {
      if (standing) stood = now;
      standing = false;
      since = isYoung ? 0 : now;
      old = ran = fell = 0;
      return false;
    }
    if (standing) return true;
    long stall = Math.max(1, table[INTERVAL] / STALL);
    old += Math.min(gap, stall);
    if (gap < stall) {
      ran += gap;
      fell += fall;
      if (ran >= 2 * table[INTERVAL]) {
        ran >>= 1;
        fell >>= 1;
      }
    }
    if (old < table[INTERVAL]) return false;
    long patience = PATIENCE * table[BOUND];
    boolean wasCalm = now - stood >= patience;
    if (wasCalm && 2 * age < table[BOUND]) return false;
    long left = wasCalm ? patience - (now - since) : 0;
    boolean recovers = left > 0 && fell > 0 && (age - table[LOWEST]) * ran <= fell * left;
    standing = !recovers;
    return standing;
  }

  private boolean isWasteful() {
    long lost = now - young;
    boolean isNew = now - start < NEW && counts[0] < WARM && lost > COLD && 3 * waste > work;
    boolean isHopeless = lost > HOPELESS && waste > work;
    return isNew || isHopeless;
  }

  // Places: 0 kept, 1 would have gone, 2 undated, 3 from the future, 4 sum of ages, 5 worst, 6 worst from the
  // future, 8 … ages, then rows by class, then those that went (or would have) by rung.
  private void count(int rung, boolean dated, long age, boolean late, boolean falls) {
    counts[firstClass + rung / rungs]++;
    if (late) counts[firstClass + classes + rung]++;
    if (falls) return;
    counts[0]++;
    if (late) counts[1]++;
    if (!dated) {
      counts[2]++;
      return;
    }
    if (age < -1000) {
      counts[3]++;
      counts[6] = Math.max(counts[6], -age);
    }
    long counted = Math.max(0L, age);
    counts[4] += counted;
    counts[5] = Math.max(counts[5], counted);
    double seconds = counted / 1000.0;
    int bin = seconds < least ? 0 : Math.min(bins - 1, 1 + (int) Math.floor(Math.log(seconds / least) / ratio));
    counts[8 + bin]++;
  }
}
