// The rows that left each mark of an executed plan, and the plan's leaves, in one answer. See plan_counts.py.

public Object generate(Object[] references) {
  return new PlanRows((String) references[0]);
}

// Of a plan, a text: for each mark its number and rows, as "1000000005=42"; for each leaf "-". The first operand is not
// used: what calls this from afar with one call has two.
static final class PlanRows implements java.util.function.BinaryOperator {
  private final java.util.regex.Pattern mark;

  PlanRows(String mark) {
    this.mark = java.util.regex.Pattern.compile(mark, java.util.regex.Pattern.CASE_INSENSITIVE);
  }

  public Object apply(Object unused, Object plan) {
    StringBuilder found = new StringBuilder();
    add((org.apache.spark.sql.execution.SparkPlan) plan, found);
    return found.toString();
  }

  private void add(org.apache.spark.sql.execution.SparkPlan node, StringBuilder found) {
    if (node instanceof org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec) {
      add(((org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec) node).executedPlan(), found);
      return;
    }
    if (node instanceof org.apache.spark.sql.execution.adaptive.QueryStageExec) {
      add(((org.apache.spark.sql.execution.adaptive.QueryStageExec) node).plan(), found);
      return;
    }
    if (node instanceof org.apache.spark.sql.execution.FilterExec) {
      Object condition = ((org.apache.spark.sql.execution.FilterExec) node).condition();
      java.util.regex.Matcher number = mark.matcher(condition.toString());
      if (number.find()) {
        org.apache.spark.util.AccumulatorV2 rows = node.longMetric("numOutputRows");
        found.append(number.group(1)).append('=').append(rows.value()).append(' ');
      }
    }
    scala.collection.Iterator below = node.children().iterator();
    if (!below.hasNext()) found.append("- ");
    while (below.hasNext()) add((org.apache.spark.sql.execution.SparkPlan) below.next(), found);
  }
}
