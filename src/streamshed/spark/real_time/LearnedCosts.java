
// What rows of a key cost, learned by one task from the time that its own rows take. See learned_costs.py, which has
// the formulas and says why. A part of the code of LadderRule.java. Times are nanoseconds.

final class LearnedCosts {
  private static final long PRIME = 2147483647L; // digests are below it
  private static final double CAP = 4; // times what was expected of a row, for which a sample counts at most
  private static final double PRIOR = 4; // rows of the mean cost that every cell seems to have seen
  private static final double FIRST = 64; // samples before anything is used, and until the matrices are halved first
  private static final double FULL = 4096; // until they are halved, later
  private static final double SPAN = 1024; // rows that arrived, over which it is reckoned what a usual one costs

  private final int columns;
  private final long[] factors; // of the hash functions, one for each row of the matrices
  private final long[] offsets;
  private final double[] often; // F
  private final double[] took; // W
  private final int[] cells; // of the digest that was looked up last
  private double rows = 0, time = 0; // sums of F and of W over a row of them
  private double usual = 0; // what a row costs that arrives, on average
  private double full = FIRST;
  private boolean learned = false;

  // hashes: the number of columns, then a factor and an offset for each row.
  LearnedCosts(long[] hashes) {
    int height = hashes.length / 2;
    columns = (int) hashes[0];
    factors = new long[height];
    offsets = new long[height];
    for (int i = 0; i < height; i++) {
      factors[i] = hashes[1 + 2 * i];
      offsets[i] = hashes[2 + 2 * i];
    }
    often = new double[height * columns];
    took = new double[height * columns];
    cells = new int[height];
  }

  // How many times as dear as a usual row one that arrives is.
  double relative(long digest) {
    if (!learned || digest >= PRIME) return 1.0;
    double expected = estimate(digest);
    usual += (expected - usual) / SPAN;
    return usual > 0 ? expected / usual : 1.0;
  }

  void add(long digest, long sample) {
    if (digest >= PRIME || sample < 0) return;
    double expected = estimate(digest); // finds the cells as well
    double counted = expected > 0 ? Math.min((double) sample, CAP * expected) : (double) sample;
    for (int i = 0; i < cells.length; i++) {
      often[cells[i]] += 1;
      took[cells[i]] += counted;
    }
    rows += 1;
    time += counted;
    if (rows >= full) halve();
  }

  private double estimate(long digest) {
    int least = 0;
    for (int i = 0; i < cells.length; i++) {
      cells[i] = i * columns + (int) ((factors[i] * digest + offsets[i]) % PRIME % columns);
      if (often[cells[i]] < often[cells[least]]) least = i;
    }
    double mean = rows > 0 ? time / rows : 0;
    return (took[cells[least]] + PRIOR * mean) / (often[cells[least]] + PRIOR);
  }

  private void halve() {
    for (int cell = 0; cell < often.length; cell++) {
      often[cell] *= 0.5;
      took[cell] *= 0.5;
    }
    rows *= 0.5;
    time *= 0.5;
    full = Math.min(FULL, 2 * full);
    if (!learned) usual = time / rows;
    learned = true;
  }
}
