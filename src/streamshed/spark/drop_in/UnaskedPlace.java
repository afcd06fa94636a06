
// A rule for Spark's optimizer: a batch that does not ask for the hidden column of its files does not have it in its plan.
// See unasked_place.py, which says why.

public Object generate(Object[] references) {
  return new UnaskedPlace();
}

static final class UnaskedPlace extends org.apache.spark.sql.catalyst.rules.Rule {
  public org.apache.spark.sql.catalyst.trees.TreeNode apply(org.apache.spark.sql.catalyst.trees.TreeNode plan) {
    try {
      return without((org.apache.spark.sql.catalyst.plans.logical.LogicalPlan) plan);
    } catch (Throwable problem) {
      return plan; // slower, and as right
    }
  }

  private static org.apache.spark.sql.catalyst.plans.logical.LogicalPlan without(
      org.apache.spark.sql.catalyst.plans.logical.LogicalPlan plan) {
    if (!plan.isStreaming()) return plan;
    Asked asked = new Asked();
    asked.add(plan.outputSet());
    plan.foreach(asked);
    return (org.apache.spark.sql.catalyst.plans.logical.LogicalPlan) plan.transformUp(new Less(asked));
  }
}

// Every column that a node of the plan asks of those below it.
static final class Asked extends scala.runtime.AbstractFunction1 {
  private final java.util.Set ids = new java.util.HashSet();

  void add(org.apache.spark.sql.catalyst.expressions.AttributeSet columns) {
    scala.collection.Iterator each = columns.iterator();
    while (each.hasNext()) ids.add(((org.apache.spark.sql.catalyst.expressions.Attribute) each.next()).exprId());
  }

  boolean has(org.apache.spark.sql.catalyst.expressions.Attribute column) {
    return ids.contains(column.exprId());
  }

  public Object apply(Object node) {
    add(((org.apache.spark.sql.catalyst.plans.QueryPlan) node).references());
    return scala.runtime.BoxedUnit.UNIT;
  }
}

// A relation of files without the hidden column, if it has one that nobody asks for.
static final class Less extends scala.runtime.AbstractPartialFunction {
  private final Asked asked;

  Less(Asked asked) {
    this.asked = asked;
  }

  public boolean isDefinedAt(Object node) {
    return node instanceof org.apache.spark.sql.execution.datasources.LogicalRelation
        && fewer((org.apache.spark.sql.execution.datasources.LogicalRelation) node) != null;
  }

  public Object applyOrElse(Object node, scala.Function1 otherwise) {
    if (!isDefinedAt(node)) return otherwise.apply(node);
    org.apache.spark.sql.execution.datasources.LogicalRelation relation =
        (org.apache.spark.sql.execution.datasources.LogicalRelation) node;
    // Not by `copy`, which has more arguments from version to version.
    Object[] parts = new Object[relation.productArity()];
    for (int place = 0; place < parts.length; place++) {
      Object part = relation.productElement(place);
      parts[place] = part == relation.output() ? fewer(relation) : part;
    }
    return relation.makeCopy(parts);
  }

  // The columns without the hidden one; null if it is asked for, or if there is none.
  private scala.collection.immutable.Seq fewer(org.apache.spark.sql.execution.datasources.LogicalRelation relation) {
    if (!(relation.relation() instanceof org.apache.spark.sql.execution.datasources.HadoopFsRelation)) return null;
    java.util.ArrayList kept = new java.util.ArrayList();
    scala.collection.Iterator each = relation.output().iterator();
    boolean found = false;
    while (each.hasNext()) {
      org.apache.spark.sql.catalyst.expressions.Attribute column =
          (org.apache.spark.sql.catalyst.expressions.Attribute) each.next();
      boolean hidden = org.apache.spark.sql.catalyst.expressions.FileSourceMetadataAttribute$.MODULE$
          .unapply((org.apache.spark.sql.catalyst.expressions.AttributeReference) column).isDefined();
      if (hidden && asked.has(column)) return null;
      found |= hidden;
      if (!hidden) kept.add(column);
    }
    if (!found) return null;
    return (scala.collection.immutable.Seq) scala.jdk.javaapi.CollectionConverters.asScala(kept).toSeq();
  }
}
