/**
 * A batch on a disk that fills while it is accepted: refused as unavailable, nothing of it is left, and it recovers.
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { batchBody, batchCaller, requestsOf } from '../support/batch-calls.ts'
import { NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { eventually } from '../support/stream-probe.ts'

const PATIENCE_MS = 60_000

function smallDisk(t: Pick<Test, 'teardown'>, megabytes: number): string | null {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-disk-'))
  const { status } = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', folder])
  t.teardown(() => {
    if (status === 0) spawnSync('umount', ['-l', folder])
    rmSync(folder, { recursive: true, force: true })
  })
  return status === 0 ? folder : null
}

const large = (bytes: number): string =>
  batchBody(
    Array.from({ length: 1_000 }, (_, at) => ({
      custom_id: `r${at}`,
      body: { input: 'x'.repeat(bytes / 1_000) },
    })),
  )

for (const [what, megabytes, bodyBytes] of [
  ['the upload', 8, 12_000_000],
  // The body fits, but not once more as lines.
  ['the database', 24, 14_000_000],
] as const) {
  t.test(`a disk without room for ${what}`, async t => {
    const disk = smallDisk(t, megabytes)
    if (disk === null) {
      t.comment('SKIPPED: mounting a file system needs root')
      return
    }
    const gateway = await startGatewayProcess(
      t,
      { limits: NO_SHEDDING },
      { DATABASE_URL: `sqlite:${join(disk, 'gateway.db')}` },
    )
    const call = batchCaller(`${gateway.url}/v1`, gateway.apiKey)
    t.equal((await call('POST', '/batches', batchBody(requestsOf(3)))).status, 202)
    for (let round = 0; round < 2; round++) {
      const refused = await call('POST', '/batches', large(bodyBytes))
      t.equal(refused.status, 503)
      t.match(refused.headers.get('retry-after'), /^\d+$/)
      t.match(refused.document, { error: { code: 503, metadata: { error_type: 'server' } } })
      t.same(readdirSync(join(disk, 'uploads')), [])
    }
    const list = await call('GET', '/batches')
    t.equal((list.document['data'] as unknown[]).length, 1, 'what was there is still there, and nothing more')
    const isRecovered = async () => (await call('POST', '/batches', batchBody(requestsOf(2)))).status === 202
    if (what === 'the upload') t.ok(await eventually(isRecovered, PATIENCE_MS), 'what fits is taken again')
    t.equal(await gateway.stop(), 0)
  })
}
