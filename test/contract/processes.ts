/** Test files that start the product as processes of its own, again and again: they have a suite for themselves. */
export const PROCESS_FILES: readonly string[] = [
  'captures-doors.test.ts',
  'captures-processes.test.ts',
  'catalogue-start.test.ts',
  'dialects-parity.test.ts',
  'exemplars.test.ts',
  'guarded-accounting.test.ts',
  'guardrail-budgets.test.ts',
  'limits.test.ts',
  'pauses-processes.test.ts',
  'replay.test.ts',
  'rollouts.test.ts',
  'sandbox-threads.test.ts',
  'tls.test.ts',
]
