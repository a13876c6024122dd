/**
 * Whatever moment the process is killed at while batches arrive: what was acknowledged is whole, the rest is nothing.
 */
import { randomBytes } from 'node:crypto'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { openStore } from '../../src/storage/open.ts'
import { batchBody, batchCaller, requestsOf } from '../support/batch-calls.ts'
import { NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { pause } from '../support/stream-probe.ts'

const ROUNDS = Number(process.env['ROUNDS'] ?? 20)
const REQUESTS = 4_000
const AT_ONCE = 3

t.setTimeout(ROUNDS * 60_000)

t.test(`${ROUNDS} kills while batches are accepted`, async t => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-batch-kill-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const storageUrl = `sqlite:${join(folder, 'gateway.db')}`
  const apiKey = `sk-gw-v1-${randomBytes(32).toString('hex')}`
  const body = batchBody(requestsOf(REQUESTS))
  const acknowledged = new Set<string>()
  let inFlight = 0
  for (let round = 0; round < ROUNDS; round++) {
    const gateway = await startGatewayProcess(
      t,
      { limits: NO_SHEDDING },
      { DATABASE_URL: storageUrl, GATEWAY_API_KEY: apiKey },
    )
    const call = batchCaller(`${gateway.url}/v1`, apiKey)
    const startMs = performance.now()
    let first = await call('POST', '/batches', body)
    // A machine that is busy has no task worker in time.
    while (first.status === 503) first = await call('POST', '/batches', body)
    if (first.status !== 202) throw new Error(first.text)
    acknowledged.add(String(first.document['id']))
    const tookMs = performance.now() - startMs
    let isKilled = false
    const client = async () => {
      while (!isKilled) {
        try {
          inFlight++
          const { status, document, text } = await call('POST', '/batches', body)
          if (status === 202) acknowledged.add(String(document['id']))
          else if (status !== 503) throw new Error(text)
          inFlight--
        } catch (error) {
          if (!isKilled) throw error
        }
      }
    }
    const clients = Array.from({ length: AT_ONCE }, client)
    // At any moment of the next batches.
    await pause(((round * 0.618) % 1) * 2 * tookMs)
    isKilled = true
    await gateway.kill()
    await Promise.all(clients)
  }
  t.comment(`${acknowledged.size} acknowledged, ${inFlight} in flight at a kill`)
  t.ok(inFlight >= ROUNDS, 'there was something to lose')
  const store = await openStore(storageUrl)
  t.teardown(() => store.close())
  const seen = new Set<string>()
  for (let after: string | undefined; ; ) {
    const page = await store.batches.list(
      { organizationId: 'org_default', workspaceId: 'ws_default', ...(after === undefined ? {} : { after }) },
      100,
    )
    for (const { id, total } of page?.items ?? []) {
      seen.add(id)
      t.equal(total, REQUESTS)
      // A later life may have begun to work on them.
      const { unchecked, waiting, claimed, finished: done } = await store.batches.work.counts(id)
      t.equal(unchecked + waiting + claimed + done, REQUESTS, `all lines of ${id}`)
    }
    after = page?.items.at(-1)?.id
    if (page?.hasMore !== true) break
  }
  t.same(
    [...acknowledged].filter(id => !seen.has(id)),
    [],
    'no acknowledged batch is lost',
  )
  t.ok(seen.size <= acknowledged.size + inFlight)
  t.same(readdirSync(join(folder, 'uploads')), [], 'no upload is left')
})
