/**
 * Cost of workspaces' own provider keys: sealing one, opening one, using one that is in memory, reading and opening
 * one, and the memory of many: `npx node --expose-gc bench/micro/credentials.ts`. Figures are comparable only within
 * one run.
 */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../src/base/clock.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import { DecryptedKeys } from '../../src/providers/credentials/decrypted-keys.ts'
import { createVault, ownerOf } from '../../src/providers/credentials/vault.ts'
import { openStore } from '../../src/storage/open.ts'
import { someCredential, someVaultKey } from '../../test/support/own-keys.ts'

const CREDENTIALS = 10_000
const KEPT = 1_000
const RANDOM_OPENS = 100_000
const POINTS = 10
const ROUNDS = 9
/** A warm open must cost no more, in microseconds. */
const WARM_MAX_MICROS = 5
/** Memory may grow by no more between the first and the last tenth of the random opens. */
const GROWTH_MAX_BYTES = 16 * 1024 * 1024

const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-credentials-'))
const vault = createVault([someVaultKey('k1')])
const key = `sk-ant-api03-${randomBytes(64).toString('base64url')}`

/** Microseconds per call: the median of the rounds, and their spread. */
function time(name: string, calls: number, call: (n: number) => unknown): number {
  for (let n = 0; n < calls / 5; n++) call(n)
  const times = Array.from({ length: ROUNDS }, () => {
    const startedMs = performance.now()
    for (let n = 0; n < calls; n++) call(n)
    return ((performance.now() - startedMs) * 1000) / calls
  }).toSorted((a, b) => a - b)
  const median = times[times.length >> 1] ?? Number.NaN
  const spread = [times[0], times.at(-1)].map(value => (value ?? Number.NaN).toFixed(2)).join('..')
  process.stdout.write(`${name.padEnd(52)} ${median.toFixed(2).padStart(8)} µs (${spread})\n`)
  return median
}

const record = someCredential(vault, key)
const owner = ownerOf(record)
const secret = Buffer.from(key)
time('seal', 5_000, () => vault.seal(secret, owner))
time('open, without the cache', 5_000, () => vault.open(record.sealed, owner).fill(0))
time('wrap anew', 5_000, () => vault.rewrap(record.sealed, owner))

const store = await openStore(`sqlite:${join(folder, 'gateway.db')}`)
const metrics = createMetrics()
const cache = new DecryptedKeys({ store, vault, clock: systemClock, metrics, maxEntries: KEPT })
const { sealed: _, ...known } = await store.credentials.add(record)
await cache.open(known)
const warm = time('warm open', 200_000, () => {
  if (cache.open(known) instanceof Promise) throw new Error('not in memory')
})
assert.ok(warm <= WARM_MAX_MICROS, `a warm open takes ${warm} µs`)

const all = [known]
while (all.length < CREDENTIALS) {
  const { sealed, ...bare } = await store.credentials.add(someCredential(vault, `${key}-${all.length}`))
  all.push(bare)
}

/** Resident memory after a collection where one can be asked for. */
function residentBytes(): number {
  globalThis.gc?.()
  return process.memoryUsage.rss()
}

/** A sequence that every run has: a linear congruence. */
let state = 1
function random(below: number): number {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
  return Math.floor((state / 2 ** 32) * below)
}

const curve: number[] = []
const startedMs = performance.now()
for (let n = 1; n <= RANDOM_OPENS; n++) {
  const credential = all[random(CREDENTIALS)]
  if (credential !== undefined) await cache.open(credential)
  if (n % (RANDOM_OPENS / POINTS) === 0) curve.push(residentBytes())
}
const perOpen = ((performance.now() - startedMs) * 1000) / RANDOM_OPENS
const value = async (metric: { get(): Promise<{ values: { value: number }[] }> }) =>
  (await metric.get()).values[0]?.value ?? 0
const [entries, bytes, hits, misses] = await Promise.all(
  [metrics.credentialEntries, metrics.credentialBytes, metrics.credentialHits, metrics.credentialMisses].map(
    value,
  ),
)
process.stdout.write(
  `${`one of ${CREDENTIALS} at random, ${KEPT} of them in memory`.padEnd(52)} ${perOpen.toFixed(2).padStart(8)} µs\n`,
)
process.stdout.write(`  ${hits} hits, ${misses} misses, ${entries} entries of ${bytes} bytes in memory\n`)
process.stdout.write(
  `  resident memory, MB, each ${RANDOM_OPENS / POINTS} opens: ${curve.map(rss => (rss / 1e6).toFixed(1)).join(' ')}\n`,
)
assert.ok((entries ?? 0) <= KEPT)
const growth = (curve.at(-1) ?? 0) - (curve[0] ?? 0)
assert.ok(growth <= GROWTH_MAX_BYTES, `memory grew by ${growth} bytes`)

cache.close()
await store.close()
rmSync(folder, { recursive: true })
