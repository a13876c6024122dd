/** Test files that start the product as processes of its own, again and again: they have a suite for themselves. */
export const PROCESS_FILES: readonly string[] = [
  'batch-errors.test.ts',
  'batch-run.test.ts',
  'batch-full-disk.test.ts',
  'canary.test.ts',
  'dialects-parity.test.ts',
  'catalogue-start.test.ts',
  'guardrail-budgets.test.ts',
  'guarded-accounting.test.ts',
  'limits-over-instances.test.ts',
  'limits.test.ts',
  'rotation.test.ts',
  'sandbox-threads.test.ts',
  'sticky-sessions.test.ts',
  'tls.test.ts',
  'two-nodes.test.ts',
]
