/**
 * Cost that workspaces' own provider credentials add to a request: in a workspace that has none, and with a key that is
 * in memory. `npx node bench/micro/own-keys.ts`. Figures are comparable only within one hour on one machine.
 */
import assert from 'node:assert/strict'
import { systemClock } from '../../src/base/clock.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import { Stickiness } from '../../src/pipeline/routing/sticky.ts'
import { createCatalog } from '../../src/providers/catalog.ts'
import {
  CredentialCatalog,
  NO_CREDENTIALS,
  type WorkspaceCredentials,
} from '../../src/providers/credentials/catalog.ts'
import { DecryptedKeys } from '../../src/providers/credentials/decrypted-keys.ts'
import { OutgoingKeys } from '../../src/providers/credentials/outgoing-key.ts'
import { createVault } from '../../src/providers/credentials/vault.ts'
import { createPins } from '../../src/storage/session-affinity/session-affinity.ts'
import type { CredentialRecord } from '../../src/storage/store.ts'
import { parseResponsesRequest } from '../../test/support/dialects.ts'
import { credentialOf, sealedRecord } from '../../test/support/own-keys.ts'
import { type RouteScope, route } from '../../test/support/ranking.ts'

const ROUNDS = 15
const TIMES = 20_000
const TARGET_NS = 5_000

const providers = ['a', 'b'].map(slug => ({
  slug,
  format: 'openai-chat' as const,
  baseUrl: 'http://127.0.0.1:1',
  apiKey: 'k',
}))
const pricing = { prompt: '0.000002', inputCacheRead: '0.000001' }
const catalog = createCatalog({
  providers,
  models: [{ id: 'm/one', endpoints: providers.map(({ slug }) => ({ provider: slug, pricing })) }],
})
const vault = createVault([{ id: 'k1', secret: Buffer.alloc(32, 7) }])
const credential = credentialOf('a', { workspaceId: 'with' })
const record: CredentialRecord = sealedRecord(vault, credential, 'sk-own-key-of-a-tenant')
const store = {
  credentials: {
    ofWorkspace: async (_: string, workspaceId: string) => (workspaceId === 'with' ? [record] : []),
    find: async () => record,
  },
}
const clock = systemClock
const credentials = new CredentialCatalog({ store, clock, freshMs: 3_600_000 })
const cache = new DecryptedKeys({ store, vault, clock, metrics: createMetrics() })
const unused = (): never => {
  throw new Error('plain keys need neither signatures nor tokens')
}
const keys = new OutgoingKeys(cache, { signer: unused, token: unused })
const stickiness = new Stickiness(createPins(clock))

const request = parseResponsesRequest({
  model: 'm/one',
  input: 'The quick brown fox jumps over the lazy dog.',
})
const inSession = parseResponsesRequest({ model: 'm/one', input: 'Hello', session_id: 'a-session' })
const { organizationId } = record
const scope = (ownKeys: WorkspaceCredentials): RouteScope => ({ ownKeys, keyHash: 'h', dataRegion: null })

/** Nanoseconds, the median of the rounds. */
function measure(name: string, step: () => unknown): number {
  const times: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const started = process.hrtime.bigint()
    for (let time = 0; time < TIMES; time++) step()
    times.push(Number(process.hrtime.bigint() - started) / TIMES)
  }
  times.sort((a, b) => a - b)
  const median = times[ROUNDS >> 1] ?? 0
  const spread = `${(times[0] ?? 0).toFixed(0)}..${(times.at(-1) ?? 0).toFixed(0)}`
  process.stdout.write(`${name.padEnd(56)} ${median.toFixed(0).padStart(8)} ns (${spread})\n`)
  return median
}

/** What is known of the workspace; a promise here would be a miss. */
function known(workspaceId: string): WorkspaceCredentials {
  const workspaceCredentials = credentials.of(organizationId, workspaceId)
  if (workspaceCredentials instanceof Promise) throw new Error('the workspace is not at hand')
  return workspaceCredentials
}

for (const workspaceId of ['without', 'with']) await credentials.of(organizationId, workspaceId)
const [endpoint] = catalog.model('m/one')?.endpoints ?? []
assert.ok(endpoint)
await keys.ownKey(credential, endpoint)

const plain = measure('route, shared endpoints only', () => route(request, catalog, scope(NO_CREDENTIALS)))
measure('look up a workspace', () => known('without'))
const without = measure('look up and route, workspace without credentials', () =>
  route(request, catalog, scope(known('without'))),
)
const withOne = measure('look up, route and open, one credential at hand', () => {
  const [first] = route(request, catalog, scope(known('with'))).candidates
  if (first?.credential == null) throw new Error('the own key does not come first')
  const key = keys.ownKey(first.credential, first.endpoint)
  if (key instanceof Promise) throw new Error('the key is not at hand')
  return key
})
const { candidates } = route(request, catalog, scope(NO_CREDENTIALS))
const caller = { keyHash: 'a'.repeat(64), organizationId, workspaceId: null }
measure('look for a pin, by session', () => stickiness.order({ caller, request: inSession }, candidates))
measure('look for a pin, by first message', () => stickiness.order({ caller, request }, candidates))
measure('look for a pin where there is no choice', () =>
  stickiness.order({ caller, request }, candidates.slice(1)),
)

for (const [name, cost] of [
  ['a workspace without credentials', without - plain],
  ['a credential at hand', withOne - plain],
] as const) {
  process.stdout.write(`${name} adds ${(cost / 1000).toFixed(2)} µs\n`)
  assert.ok(cost < TARGET_NS, `${name} costs more than ${TARGET_NS} ns`)
}
cache.close()
