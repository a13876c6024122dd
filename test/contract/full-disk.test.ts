/** The product on a disk that fills: inference goes on, management is told to come again, and all recovers. */
import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { closeSync, mkdtempSync, openSync, rmSync, unlinkSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { caller } from '../support/management.ts'
import { eventually } from '../support/stream-probe.ts'

const PATIENCE_MS = 60_000

/** A small file system of the test's own; null where mounting is not allowed. */
function smallDisk(t: Pick<Test, 'teardown'>): string | null {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-disk-'))
  const { status } = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', folder])
  t.teardown(() => {
    if (status === 0) spawnSync('umount', ['-l', folder])
    rmSync(folder, { recursive: true, force: true })
  })
  return status === 0 ? folder : null
}

/** Takes all the room that is left. */
function fill(path: string): void {
  const file = openSync(path, 'w')
  const piece = Buffer.alloc(4096)
  try {
    for (;;) if (writeSync(file, piece) < piece.length) return
  } catch {
    // No space left on the device.
  } finally {
    closeSync(file)
  }
}

t.test('a full disk costs no request and no record, and management is told to come again', async t => {
  const disk = smallDisk(t)
  if (disk === null) {
    t.comment('SKIPPED: mounting a file system needs root')
    return
  }
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const gateway = await startGatewayProcess(
    t,
    { limits: NO_SHEDDING },
    { DATABASE_URL: `sqlite:${join(disk, 'gateway.db')}`, GATEWAY_MANAGEMENT_KEY: managementKey },
  )
  const call = caller(`${gateway.url}/v1`, managementKey)
  const respond = () =>
    fetch(`${gateway.url}/v1/responses`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'sim/echo', input: 'Hello' }),
    })
  const readiness = async () => (await fetch(`${gateway.adminUrl}/readyz`)).json() as Promise<unknown>
  const requests = async () => {
    const { list } = await call('GET', '/activity')
    return list.reduce((sum, row) => sum + Number(row['requests']), 0)
  }
  t.same(await readiness(), { status: 'ready' })
  t.equal((await respond()).status, 200)
  fill(join(disk, 'filler'))
  let full = 0
  t.ok(
    await eventually(async () => {
      t.equal((await respond()).status, 200)
      full++
      return (await gateway.metric('gateway_usage_records_waiting')) > 0
    }, PATIENCE_MS),
    'records wait in memory, and a gauge tells it',
  )
  const refused = await fetch(`${gateway.url}/v1/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${managementKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'x' }),
  })
  t.equal(refused.status, 503)
  t.equal(refused.headers.get('retry-after'), '1')
  t.match(await refused.json(), { error: { code: 503 } })
  t.equal((await call('GET', '/keys')).status, 200, 'it can be read')
  t.ok(
    await eventually(async () => {
      const told = (await readiness()) as { status: string; degraded?: readonly string[] }
      return told.status === 'ready' && told.degraded?.includes('disk') === true
    }, PATIENCE_MS),
    'it is ready, and says what is wrong',
  )
  unlinkSync(join(disk, 'filler'))
  t.ok(await eventually(async () => (await call('POST', '/keys', { name: 'x' })).status === 201, PATIENCE_MS))
  t.ok(
    await eventually(async () => !('degraded' in ((await readiness()) as object)), PATIENCE_MS),
    'it recovers by itself',
  )
  t.ok(
    await eventually(
      async () =>
        (await gateway.metric('gateway_usage_records_waiting')) === 0 && (await requests()) === full + 1,
      PATIENCE_MS,
    ),
    'and no record is lost',
  )
  t.equal(await gateway.metric('gateway_usage_records_total', { accounting: 'lost' }), 0)
})
