/** The running product with a simulated model at a simple price, for tests of what keys may spend and request. */
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import type { Test } from 'tap'
import { hashKey } from '../../src/callers/api-key.ts'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from './gateway-process.ts'
import { type Answered, caller } from './management.ts'
import { eventually } from './stream-probe.ts'
import { tempFolder } from './temp-folder.ts'

/** Each request costs the same, whatever is said. */
export const PRICED = {
  id: 'sim/priced',
  endpoints: [{ provider: 'sim', upstreamModel: 'echo', pricing: { request: '0.001' } }],
}
export const ASK = { model: PRICED.id, input: 'Hi' }

interface More {
  readonly settings?: Readonly<Record<string, unknown>>
  /** Default: a new one. Instances that share theirs share their keys. */
  readonly database?: string
  readonly threads?: number
}

export interface LimitedGateway {
  readonly gateway: GatewayProcess
  newKey(limit: number | null): Promise<string>
  /** The same on every instance, which share their database. */
  change(apiKey: string, fields: Readonly<Record<string, unknown>>): Promise<void>
  /** GET, or POST with a body. @throws Error when it is refused */
  manage(path: string, body?: unknown): Promise<Answered>
}

export const newDatabase = (): string => `sqlite:${join(tempFolder('sluice-limits'), 'gateway.db')}`

export async function startLimited(
  t: Pick<Test, 'teardown'>,
  { settings = {}, database = newDatabase(), threads = 2 }: More = {},
): Promise<LimitedGateway> {
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const gateway = await startGatewayProcess(
    t,
    { models: [PRICED], limits: NO_SHEDDING, ...settings },
    { GATEWAY_SERVE_THREADS: String(threads), GATEWAY_MANAGEMENT_KEY: managementKey, DATABASE_URL: database },
  )
  const call = async (method: string, path: string, body?: unknown): Promise<Answered> => {
    const answered = await caller(`${gateway.url}/v1`, managementKey)(method, path, body)
    if (answered.status >= 300) throw new Error(`${method} ${path}: ${answered.status} ${answered.text}`)
    return answered
  }
  return {
    gateway,
    newKey: async limit => String((await call('POST', '/keys', { name: 'limited', limit })).document['key']),
    change: async (apiKey, fields) => void (await call('PATCH', `/keys/${hashKey(apiKey)}`, fields)),
    manage: (path, body) => call(body === undefined ? 'GET' : 'POST', path, body),
  }
}

/** How long is waited for what the processes do on their own; a busy machine takes its time. */
export const PATIENCE_MS = 60_000

/** Whether all instances come to count in Redis. */
export const countedInRedis = (gateways: readonly GatewayProcess[]): Promise<boolean> =>
  eventually(async () => {
    const degraded = await Promise.all(gateways.map(gateway => gateway.metric('gateway_quota_degraded')))
    return degraded.every(value => value === 0)
  }, PATIENCE_MS)

/**
 * Usage records of all threads, once so many requests are over and at least so many records are made: a thread that
 * does not answer a scrape in time has its old counts in it.
 */
export async function recordsOf(gateway: GatewayProcess, requests: number, records: number): Promise<number> {
  const made = () => gateway.metric('gateway_usage_records_total')
  await eventually(
    async () => (await gateway.metric('gateway_requests_total', { route: '/responses' })) >= requests,
    PATIENCE_MS,
  )
  await eventually(async () => (await made()) >= records, PATIENCE_MS)
  return made()
}

/**
 * Runs it again when a minute ended on the way: then there are two of everything.
 * @throws Error when it takes longer than can be waited for
 */
export async function withinOneMinute<T>(run: () => Promise<T>): Promise<T> {
  const minute = () => Math.floor(Date.now() / 60_000)
  for (let tries = 0; tries < 3; tries++) {
    const began = minute()
    const result = await run()
    if (began === minute()) return result
  }
  throw new Error('a minute ended on the way three times: what is run takes too long for this machine')
}
