/** Alerts of accounting, stores and the process, each caused: it fires, and ends with its cause. */
import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import {
  closeSync,
  globSync,
  mkdtempSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { systemClock } from '../../src/base/clock.ts'
import { createLog } from '../../src/base/log/log.ts'
import { openSpool } from '../../src/storage/spool/spool.ts'
import { selfSigned } from '../providers/upstream/self-signed.ts'
import { someUsage } from '../storage/usage.ts'
import { freePort } from '../support/free-port.ts'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { caller } from '../support/management.ts'
import { certificateFiles } from '../support/over-tls.ts'
import { PostgresLink, postgresSchema, withoutPostgres } from '../support/postgres.ts'
import { moodyProvider } from '../support/provider.ts'
import { ownRedis, WITHOUT_REDIS } from '../support/redis-server.ts'
import { eventually, openProbe, pause } from '../support/stream-probe.ts'
import { ALERTS, type AlertWatch, watchAlerts } from './alert-watch.ts'
import { missingTools } from './prometheus.ts'

t.setTimeout(1_800_000)

const missing = missingTools()
const skip = missing.length > 0 && process.env['CI'] !== 'true' ? `${missing.join(' and ')} not found` : false
const PATIENCE_MS = 120_000
const FAULTS = join(import.meta.dirname, 'thread-faults.ts')
const MIB = 1024 * 1024
/** So that thousands of requests do not push what matters out of the log that is kept here. */
const QUIET = { limits: NO_SHEDDING, log: { successShare: 0 } }

const newManagementKey = (): string => `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
const newMasterKey = (id: string): string => `${id}:${randomBytes(32).toString('base64')}`
const ask = (gateway: GatewayProcess, model: string, apiKey = gateway.apiKey) =>
  openProbe({ model, input: 'Hi', stream: true }, { port: gateway.port, apiKey }).result

/** Does it again and again until it is told to stop. */
function keepOn(step: () => Promise<unknown>): () => Promise<void> {
  let isOver = false
  const ended = (async () => {
    while (!isOver) await step()
  })()
  return async () => {
    isOver = true
    await ended
  }
}

/** A line of this message, with these fields, is in the log. */
async function logs(
  t: Test,
  gateway: GatewayProcess,
  message: string,
  fields: readonly string[],
): Promise<void> {
  const find = () =>
    gateway
      .stdout()
      .split('\n')
      .find(line => line.includes(`"msg":"${message}`))
  t.ok(await eventually(() => find() !== undefined, PATIENCE_MS), `the log says: ${message}`)
  for (const field of fields) t.match(find(), `"${field}":`)
}

t.test('a jump of spending', { skip }, async t => {
  const price = (id: string, request: string) => ({
    id,
    endpoints: [{ provider: 'sim', upstreamModel: 'echo', pricing: { request } }],
  })
  const managementKey = newManagementKey()
  const gateway = await startGatewayProcess(
    t,
    { simulator: { enabled: true }, models: [price('m/cheap', '0.001'), price('m/dear', '2')] },
    { GATEWAY_MANAGEMENT_KEY: managementKey },
  )
  const watch = await watchAlerts(t, gateway.adminUrl)
  const model = { name: 'm/cheap' }
  const stop = keepOn(async () => {
    await ask(gateway, model.name)
    await pause(300)
  })
  // A day, and an hour more.
  const isOld = async () => (await watch.prometheus.ask('gateway_cost_usd_total offset 55s')).length > 0
  t.ok(await eventually(isOld, PATIENCE_MS))
  model.name = 'm/dear'
  await watch.fires(t, 'SluiceSpendingJumps')
  t.equal((await caller(`${gateway.url}/v1`, managementKey)('GET', '/activity')).status, 200)
  model.name = 'm/cheap'
  await watch.ends(t, 'SluiceSpendingJumps')
  await stop()
})

t.test('a disk without room', { skip }, async t => {
  const disk = mkdtempSync(join(tmpdir(), 'sluice-disk-'))
  const { status } = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', disk])
  t.teardown(() => {
    if (status === 0) spawnSync('umount', ['-l', disk])
    rmSync(disk, { recursive: true, force: true })
  })
  if (status !== 0) {
    t.comment('SKIPPED: mounting a file system needs root')
    return
  }
  const gateway = await startGatewayProcess(t, QUIET, { DATABASE_URL: `sqlite:${join(disk, 'gateway.db')}` })
  const watch = await watchAlerts(t, gateway.adminUrl)
  await ask(gateway, 'sim/echo')
  fill(join(disk, 'filler'))
  const stop = keepOn(() => Promise.all(Array.from({ length: 10 }, () => ask(gateway, 'sim/echo'))))
  await watch.fires(t, 'SluiceDiskFull')
  await logs(t, gateway, 'the disk is full', ['folder'])
  await watch.fires(t, 'SluiceUsageRecordsWait')
  await watch.fires(t, 'SluiceUsageRecordsLost')
  await stop()
  unlinkSync(join(disk, 'filler'))
  for (const name of ['SluiceDiskFull', 'SluiceUsageRecordsWait', 'SluiceUsageRecordsLost'])
    await watch.ends(t, name)
})

/** Takes all the room that is left. */
function fill(path: string): void {
  const file = openSync(path, 'w')
  try {
    for (const piece = Buffer.alloc(4096); writeSync(file, piece) === piece.length; );
  } catch {
    // No space left on the device.
  } finally {
    closeSync(file)
  }
}

t.test('an export whose destination is away', { skip }, async t => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-export-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  // No folder can be made where a file is.
  const [blocked, target] = [join(folder, 'away'), join(folder, 'away/usage')]
  writeFileSync(blocked, '')
  const gateway = await startGatewayProcess(t, {
    ...QUIET,
    export: [{ url: `file:${target}`, everyMs: 1_000, maxWaitingBytes: MIB }],
  })
  const watch = await watchAlerts(t, gateway.adminUrl)
  const stop = keepOn(() => Promise.all(Array.from({ length: 10 }, () => ask(gateway, 'sim/echo'))))
  await watch.fires(t, 'SluiceExportLosesRecords')
  await stop()
  await logs(t, gateway, 'cannot export usage', ['to', 'errorCode'])
  await watch.fires(t, 'SluiceExportBehind')
  unlinkSync(blocked)
  await watch.ends(t, 'SluiceExportBehind')
  await watch.ends(t, 'SluiceExportLosesRecords')
  t.ok(globSync(join(target, '*.jsonl')).length > 0, 'what waited has arrived')
})

t.test(
  'a database and a Redis that are slow, or away',
  { skip: skip || WITHOUT_REDIS || (await withoutPostgres()) },
  async t => {
    const [schema, link, redis] = [await postgresSchema(t), await PostgresLink.up(t), await ownRedis(t)]
    await redis.start()
    const managementKey = newManagementKey()
    const environment = {
      GATEWAY_VAULT_KEYS: newMasterKey('k1'),
      GATEWAY_MANAGEMENT_KEY: managementKey,
      REDIS_URL: redis.url,
    }
    const settings = { limits: NO_SHEDDING }
    const start = (database: string) => {
      const url = new URL(database)
      // It gives its own.
      url.searchParams.delete('application_name')
      return startGatewayProcess(t, settings, { ...environment, DATABASE_URL: url.href })
    }
    const [gateway, other] = [await start(schema.urlAt(link.port)), await start(schema.url)]
    const watch = await watchAlerts(t, gateway.adminUrl)

    const manage = caller(`${other.url}/v1`, managementKey)
    link.lateMs = 200
    // Keys that this instance does not know yet: each waits for the database.
    const stop = keepOn(async () => {
      const { document } = await manage('POST', '/keys', { name: 'unknown' })
      await ask(gateway, 'sim/echo', String(document['key']))
    })
    await watch.fires(t, 'SluiceStorageSlow')
    // No task runs here, so none waits.
    await watch.fires(t, 'SluiceGatewaySlow', {}, ['gateway_task_wait_seconds'])
    const { rows } = await schema.client.query(
      "select 1 from pg_stat_activity where application_name = 'sluice'",
    )
    t.ok(rows.length > 0, 'the database names the connections of the gateway')
    link.lateMs = 0
    await watch.ends(t, 'SluiceStorageSlow')
    await watch.ends(t, 'SluiceGatewaySlow')
    await stop()

    await redis.kill()
    await watch.fires(t, 'SluiceLimitsByShare')
    await ask(gateway, 'sim/echo')
    await logs(t, gateway, 'redis is unavailable', ['host', 'errorClass'])
    await redis.start()
    await watch.ends(t, 'SluiceLimitsByShare')

    await link.cut()
    await watch.fires(t, 'SluiceStorageDown')
    await logs(t, gateway, 'cannot use the store', ['host', 'errorCode'])
    t.equal((await ask(gateway, 'sim/echo')).last, 'response.completed', 'known keys are served')
    const unknown = await ask(gateway, 'sim/echo', `sk-gw-v1-${randomBytes(32).toString('hex')}`)
    t.equal(unknown.status, 503)
    t.match(unknown.body, "The gateway's database is currently unavailable")
    backlog(gateway, 70 * MIB)
    await watch.fires(t, 'SluiceLedgerBehind')
    await link.start()
    await watch.ends(t, 'SluiceStorageDown')
    await watch.ends(t, 'SluiceLedgerBehind')
  },
)

/** Usage records of many requests, as threads of the gateway write them, in its spool. */
function backlog(gateway: GatewayProcess, bytes: number): void {
  const [written] = globSync(join(dirname(gateway.configFile), 'data/**/*.jsonl'))
  if (written === undefined) throw new Error('no spool')
  const log = createLog('silent', { write: () => undefined })
  const spool = openSpool(dirname(written), {
    clock: systemClock,
    log,
    onLost: () => undefined,
    writer: 'backlog',
  })
  const trace = { note: 'x'.repeat(8_000) }
  for (let size = 0; size < bytes; size += 8_000) spool.append(someUsage({ trace }))
  spool.close()
}

t.test('provider keys', { skip: skip || (await withoutPostgres()) }, async t => {
  const schema = await postgresSchema(t)
  const managementKey = newManagementKey()
  const [first, second] = [newMasterKey('k1'), newMasterKey('k2')]
  const { url: baseUrl } = await moodyProvider(t)
  const slugs = ['openai', 'groq', 'mistral', 'deepseek']
  const providers = slugs.map(slug => ({ slug, format: 'openai-chat', baseUrl, apiKey: 'none' }))
  const settings = {
    limits: NO_SHEDDING,
    providers,
    models: slugs.map(slug => ({ id: `m/${slug}`, endpoints: [{ provider: slug, pricing: {} }] })),
    credentials: { maxEntries: 2 },
  }
  const port = String(await freePort())
  const environment = {
    DATABASE_URL: schema.url,
    GATEWAY_MANAGEMENT_KEY: managementKey,
    GATEWAY_ADMIN_PORT: port,
  }
  const start = (keys: string, adminPort = port) =>
    startGatewayProcess(t, settings, {
      ...environment,
      GATEWAY_VAULT_KEYS: keys,
      GATEWAY_ADMIN_PORT: adminPort,
    })
  const gateway = await start(first)
  const manage = caller(`${gateway.url}/v1`, managementKey)
  const watch = await watchAlerts(t, gateway.adminUrl)
  for (const provider of slugs) {
    const { status, text } = await manage('POST', '/byok', {
      provider,
      key: `sk-example-${provider}-0123456789`,
      name: provider,
    })
    t.equal(status, 201, text)
  }
  let turn = 0
  // Each key twice in a row: it is there the second time.
  const stop = keepOn(() => ask(gateway, `m/${slugs[Math.floor(turn++ / 2) % slugs.length]}`))
  await watch.fires(t, 'SluiceCredentialCacheTooSmall')
  await stop()
  await watch.ends(t, 'SluiceCredentialCacheTooSmall')

  const other = await start(`${second},${first}`, '0')
  const added = await caller(`${other.url}/v1`, managementKey)('POST', '/byok', {
    provider: 'openai',
    key: 'sk-example-second-0123456789',
    name: 'sealed with another key',
  })
  t.equal(added.status, 201, added.text)
  await watch.fires(t, 'SluiceMasterKeyMissing')
  t.equal(await gateway.stop(), 0)
  await start(`${second},${first}`)
  await watch.ends(t, 'SluiceMasterKeyMissing')
})

t.test('a process that is away, and one that starts again and again', { skip }, async t => {
  const environment = { GATEWAY_ADMIN_PORT: String(await freePort()) }
  const start = () => startGatewayProcess(t, {}, environment)
  let gateway = await start()
  const watch = await watchAlerts(t, gateway.adminUrl)
  const isScraped = async (value: string) =>
    (await watch.prometheus.ask('up{job="sluice"}')).some(({ value: [, up] }) => up === value)
  t.ok(await eventually(() => isScraped('1'), PATIENCE_MS))
  // Before the first scrape there is none.
  await watch.ends(t, 'SluiceAbsent')
  await gateway.kill()
  await watch.fires(t, 'SluiceAbsent')
  gateway = await start()
  await watch.ends(t, 'SluiceAbsent')
  const stop = keepOn(async () => {
    await gateway.kill()
    gateway = await start()
    await eventually(() => isScraped('1'), PATIENCE_MS)
  })
  await watch.fires(t, 'SluiceRestartsOften')
  await stop()
  await watch.ends(t, 'SluiceRestartsOften')
})

t.test('a certificate that expires', { skip }, async t => {
  const inDays = (days: number): string =>
    new Date(Date.now() + days * 86_400_000).toISOString().replace(/^..|[-T:]|\.\d+/g, '')
  const pair = (days: number) => selfSigned(['localhost'], true, { from: inDays(-10), until: inDays(days) })
  const files = certificateFiles(pair(3))
  const gateway = await startGatewayProcess(t, { listen: { tls: files } })
  const watch = await watchAlerts(t, gateway.adminUrl)
  await watch.fires(t, 'SluiceCertificateExpires')
  const { key, cert } = pair(90)
  writeFileSync(`${files.cert}.new`, cert)
  writeFileSync(`${files.key}.new`, key, { mode: 0o600 })
  renameSync(`${files.key}.new`, files.key)
  renameSync(`${files.cert}.new`, files.cert)
  await watch.ends(t, 'SluiceCertificateExpires')
})

t.test('a configuration that is refused', { skip }, async t => {
  const gateway = await startGatewayProcess(t, {})
  const watch = await watchAlerts(t, gateway.adminUrl)
  const good = readFileSync(gateway.configFile, 'utf8')
  writeFileSync(gateway.configFile, '')
  await watch.fires(t, 'SluiceConfigRefused')
  await logs(t, gateway, 'configuration not reloaded', [])
  writeFileSync(gateway.configFile, good)
  await watch.ends(t, 'SluiceConfigRefused')
})

t.test('threads that crash, and one that hangs', { skip }, async t => {
  const port = String(await freePort())
  const gateway = await startGatewayProcess(t, {}, { NODE_OPTIONS: `--import=${FAULTS}`, GATEWAY_PORT: port })
  const folder = dirname(gateway.configFile)
  // Longer than the gateway waits for an answer of the thread.
  const watch: AlertWatch = await watchAlerts(t, gateway.adminUrl, 3_000)
  const stop = keepOn(async () => {
    writeFileSync(join(folder, 'thread-fails'), '')
    await pause(200)
  })
  await watch.fires(t, 'SluiceThreadsCrash')
  await stop()
  rmSync(join(folder, 'thread-fails'), { force: true })
  await logs(t, gateway, 'serve thread failed', ['errorClass'])
  await watch.ends(t, 'SluiceThreadsCrash')

  // It waits longer before each restart; one that hangs before it is up would be down.
  const isUp = async () => (await gateway.metric('gateway_threads', { state: 'up' })) === 1
  t.ok(await eventually(isUp, PATIENCE_MS), 'the thread is up again')
  writeFileSync(join(folder, 'thread-hangs'), '')
  await watch.fires(t, 'SluiceThreadDown', { state: 'silent' })
  t.match(gateway.stdout(), /"component":"threads".*serve-0/)
  unlinkSync(join(folder, 'thread-hangs'))
  await watch.ends(t, 'SluiceThreadDown')
})

t.test('every alert of the rules is caused', async t => {
  const source = ['alerts-requests', 'alerts-storage']
    .map(name => readFileSync(join(import.meta.dirname, `${name}.test.ts`), 'utf8'))
    .join('')
  t.same(
    ALERTS.filter(name => !source.includes(`'${name}'`)),
    [],
  )
  t.comment(`${ALERTS.length} alerts`)
})
