/**
 * Tests that take minutes: `npm test` leaves them out and `npm run test:heavy` runs all of them. CI runs one group each
 * time, in turn. Paths are below `test/`.
 */

/** Groups of some minutes that also hold on a busy machine. */
export const GROUPS: Readonly<Record<string, readonly string[]>> = {
  'second-front': ['contract/node-front.heavy.ts'],
  instances: [
    'contract/two-nodes.test.ts',
    'contract/limits-over-instances.test.ts',
    'contract/resumable-processes.test.ts',
    'contract/idempotency-processes.test.ts',
    'contract/lost-rights-processes.test.ts',
    'heavy/retries.test.ts',
    'contract/sticky-sessions.test.ts',
    'contract/rollouts-over-instances.test.ts',
  ],
  secrets: ['contract/canary.test.ts', 'contract/rotation.test.ts', 'features/sandbox/escapes.test.ts'],
  batches: [
    'contract/batch-run.test.ts',
    'contract/batch-errors.test.ts',
    'contract/batch-full-disk.test.ts',
    'contract/batch-faults.test.ts',
  ],
  reasons: ['contract/why.test.ts'],
  traces: ['heavy/traces.test.ts'],
  'idle-threads': ['process/threads/idle-gateway.test.ts'],
  kills: ['process/threads/ledger-kill.test.ts', 'storage/store-kill.test.ts'],
  bounds: ['contract/pieces.test.ts', 'heavy/calls.test.ts', 'heavy/drain.test.ts'],
  fuzz: ['heavy/fuzz-habits.test.ts', 'heavy/fuzz-replies.test.ts', 'heavy/fuzz-requests.test.ts'],
  masks: ['heavy/masks.test.ts'],
  plan: ['heavy/plan.test.ts'],
  chart: ['heavy/chart.test.ts'],
  widths: ['browser/keyboard-widths.heavy.ts'],
  bench: ['bench/dialects.test.ts', 'bench/parity.test.ts', 'bench/probe.test.ts'],
}

/** They measure, or take long: for a machine that does nothing else. */
export const ALONE: readonly string[] = [
  'heavy/batch-accept-kill.test.ts',
  'heavy/batch-faults.test.ts',
  'heavy/batch-kill.test.ts',
  'heavy/batch-upload.test.ts',
  'heavy/bursts.test.ts',
  'heavy/event-loop.test.ts',
  'heavy/growth.test.ts',
  'heavy/heartbeat.test.ts',
  'heavy/hostile-memory.test.ts',
  'heavy/ledger-kill.test.ts',
  'heavy/many-streams.test.ts',
  'heavy/money-walks.test.ts',
  'heavy/one-key.test.ts',
  'heavy/outages.test.ts',
  'heavy/overload.test.ts',
  'heavy/overspend.test.ts',
  'heavy/package.test.ts',
  'heavy/prometheus.test.ts',
  'heavy/rolling-restart.test.ts',
  'heavy/slow-attackers.test.ts',
  'heavy/slow-readers.test.ts',
  'heavy/soak.test.ts',
  'heavy/spool-kill.test.ts',
  'heavy/store-kill.test.ts',
  'heavy/stream-memory.test.ts',
]

/**
 * Only by name, `npm run test:heavy -- agents`: they install programs from npm, wait for real time to pass, or fill
 * large ledgers.
 */
export const NAMED: Readonly<Record<string, readonly string[]>> = {
  agents: ['heavy/agents.test.ts'],
  frameworks: ['heavy/frameworks.test.ts'],
  clouds: ['heavy/clouds.test.ts'],
  alerts: ['heavy/alerts-requests.test.ts', 'heavy/alerts-storage.test.ts'],
  'idle-soak': ['heavy/idle-soak.test.ts'],
  usage: ['heavy/usage-figures.test.ts', 'heavy/usage-search.test.ts'],
}

/** Files of other folders that their suites leave out. */
export const HEAVY_FILES: ReadonlySet<string> = new Set(
  Object.values(GROUPS)
    .flat()
    .filter(file => !file.startsWith('heavy/')),
)

/** The group whose turn it is: the same one for the same commit. @param commit its hash */
export function groupOf(commit: string): string {
  const names = Object.keys(GROUPS)
  return names[Number.parseInt(commit.slice(0, 8), 16) % names.length] ?? ''
}

/** Everyday files that take ten seconds and more: `npm run test:quick` leaves them to `npm test`. */
export const SLOW_FILES: ReadonlySet<string> = new Set([
  'api/openapi-client.test.ts',
  'batches/runner-callers.test.ts',
  'batches/runner-faults.test.ts',
  'batches/services/runner.test.ts',
  'contract/full-disk.test.ts',
  'contract/guardrails-parity.test.ts',
  'contract/tool-matrix.test.ts',
  'contract/upstream-faults.test.ts',
  'pipeline/turn/abandoned-replies.test.ts',
  'pipeline/answer/relay.test.ts',
  'pipeline/answer/relay-chat.test.ts',
  'pipeline/answer/relay-messages.test.ts',
  'pipeline/recorded-replies.test.ts',
  'growth.test.ts',
  'main.test.ts',
  'package.test.ts',
  'storage/batch-parallel.test.ts',
  'storage/postgres.test.ts',
  'storage/sqlite.test.ts',
  'process/threads/idle-gateway.test.ts',
  'process/threads/supervisor.test.ts',
  'providers/upstream/pieces.test.ts',
])
