/** Exports of usage to a folder, to an address that is down for a while, and to a bucket. */
import { createHmac } from 'node:crypto'
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createDestination, type ExportRow } from '../../../src/process/exports/destination.ts'
import { UsageExport, type UsageExportOptions } from '../../../src/process/exports/usage-export.ts'
import { parseLines, wholeRecord } from '../../../src/storage/spool/usage-line.ts'
import { listening } from '../../support/listening.ts'
import { TestClock } from '../../support/test-clock.ts'

const CANARY = 'canary-of-a-caller'

const record = (id: string) => {
  const line = {
    id,
    createdAt: '2026-01-02T03:04:00.000Z',
    organizationId: 'o',
    keyHash: 'k',
    outcome: 'completed',
    accounting: 'exact',
    inputTokens: 1,
    outputTokens: 2,
    cost: 3,
    endUser: CANARY,
    sessionId: CANARY,
    agent: CANARY,
    app: { title: CANARY },
    trace: { trace_name: CANARY },
  }
  const [parsed] = parseLines(`${JSON.stringify(line)}\n`).records
  if (parsed === undefined) throw new Error('no record')
  return wholeRecord(parsed)
}

const ids = (bodies: readonly string[]) =>
  bodies.flatMap(body =>
    body
      .trim()
      .split('\n')
      .map(line => (JSON.parse(line) as { id: string }).id),
  )

function world(
  t: Test,
  row: ExportRow,
  root = t.testdir({ key: 'id\n', secret: 's\n' }),
  more: Partial<UsageExportOptions> = {},
) {
  const clock = new TestClock()
  const lines: unknown[] = []
  const log = {
    fault: (...[, message]: unknown[]) => void lines.push(message),
    notice: (...[, message]: unknown[]) => void lines.push(message),
  }
  const start = () =>
    new UsageExport({
      folder: join(root, 'state'),
      destination: createDestination(row, clock),
      everyMs: 1_000,
      clock,
      log,
      ...more,
    })
  return { root, clock, lines, start }
}

t.test('a folder gets the records, and nothing that callers named', async t => {
  const root = t.testdir({})
  const out = join(root, 'out')
  const { start, clock } = world(t, { url: `file:${out}` }, root)
  const first = start()
  first.add([record('gen-1'), record('gen-2')])
  t.equal(first.lagSeconds, 5, 'since the record was made')
  await first.run()
  t.equal(first.lagSeconds, 0)
  first.add([record('gen-3')])
  clock.advance(1_000)
  await first.close()
  const names = readdirSync(out).toSorted()
  const [node = ''] = (names[0] ?? '').split('-')
  t.match(names, [new RegExp(`^${node}-gen-1-[0-9a-f]{8}\\.jsonl$`), new RegExp(`^${node}-gen-3-`)])
  const bodies = names.map(name => readFileSync(join(out, name), 'utf8'))
  t.same(ids(bodies), ['gen-1', 'gen-2', 'gen-3'])
  t.notMatch(bodies.join(''), CANARY)
  t.match(JSON.parse(bodies[0]?.split('\n')[0] ?? ''), { cost_picousd: 3, input_tokens: 1, output_tokens: 2 })
})

t.test('an address that is down gets all of it when it is back, also over a restart, signed', async t => {
  const got: { name: string; body: string; signature: string }[] = []
  let status = 503
  const server = createServer((request, response) => {
    let body = ''
    request.setEncoding('utf8').on('data', (more: string) => {
      body += more
    })
    request.on('end', () => {
      const { 'x-sluice-export': name, 'x-sluice-signature': signature } = request.headers
      if (status === 200) got.push({ name: String(name), body, signature: String(signature) })
      response.writeHead(status).end()
    })
  })
  const { port } = await listening(server, t)
  const url = `http://127.0.0.1:${port}/usage`
  const root = t.testdir({ secret: 's\n' })
  const { start, lines, clock } = world(t, { url, secretFile: join(root, 'secret') }, root)
  const first = start()
  first.add([record('gen-1')])
  await first.run()
  first.add([record('gen-2')])
  clock.advance(600_000)
  t.equal(first.lagSeconds, 605)
  await first.close()
  t.same(lines, ['cannot export usage; records are kept on disk'])

  const second = start()
  t.equal(second.lagSeconds, 605, 'a restart does not make it younger')
  second.add([record('gen-3')])
  status = 200
  await second.run()
  t.same(new Set(ids(got.map(({ body }) => body))), new Set(['gen-1', 'gen-2', 'gen-3']))
  const [one] = got
  const [, seconds = '', hex = ''] = /^t=(\d+),v1=(\w+)$/.exec(one?.signature ?? '') ?? []
  t.equal(hex, createHmac('sha256', 's').update(`${seconds}.${one?.body}`).digest('hex'))
  t.same(readdirSync(join(root, 'state')), ['node'])
  await second.close()
})

t.test('a bucket is asked with a signature, one object below the prefix', async t => {
  const asked: { method: string; url: string; authorization: string }[] = []
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      const { method = '', url = '', headers } = request
      asked.push({ method, url, authorization: String(headers.authorization) })
      response.writeHead(200).end()
    })
  })
  const { url: endpoint } = await listening(server, t)
  const root = t.testdir({})
  for (const [name, text] of [
    ['id', 'AKIDEXAMPLE\n'],
    ['key', 'wJalrXUtnFEMI/K7MDENG\n'],
  ] as const)
    writeFileSync(join(root, name), text)
  const files = { accessKeyIdFile: join(root, 'id'), secretAccessKeyFile: join(root, 'key') }
  const { start } = world(t, { url: 's3://billing/sluice', endpoint, region: 'eu-central-1', ...files }, root)
  const running = start()
  running.add([record('gen-1')])
  await running.close()
  t.match(asked, [
    {
      method: 'PUT',
      url: /^\/billing\/sluice\/\w+-gen-1-[0-9a-f]{8}\.jsonl$/,
      authorization:
        /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\/20260102\/eu-central-1\/s3\/aws4_request, .*Signature=[0-9a-f]{64}$/,
    },
  ])
})

t.test('a file that another process has named is no failure of this one', async t => {
  const root = t.testdir({})
  const out = join(root, 'out')
  const { start, lines } = world(t, { url: `file:${out}` }, root)
  const first = start()
  first.add([record('gen-1')])
  const state = join(root, 'state')
  const open = readdirSync(state).find(name => name.startsWith('open-')) ?? ''
  renameSync(join(state, open), join(state, 'other-gen-1-00000000.jsonl'))
  await first.run()
  t.same(lines, [])
  t.same(readdirSync(out), ['other-gen-1-00000000.jsonl'])
  t.equal(first.lagSeconds, 0)
  await first.close()
})

/** All records below a folder, by object. */
const objects = (folder: string) =>
  new Map(
    readdirSync(folder)
      .toSorted()
      .map(name => [name, ids([readFileSync(join(folder, name), 'utf8')])]),
  )

t.test(
  'an object put again replaces itself, and a shorter one never takes the place of a fuller one',
  async t => {
    const root = t.testdir({})
    const out = join(root, 'out')
    const state = join(root, 'state')
    const { start } = world(t, { url: `file:${out}` }, root)
    /** What a process that was killed leaves has rested by the time of the next start. */
    const killed = () => {
      for (const name of readdirSync(state)) utimesSync(join(state, name), 1, 1)
    }
    start().add([record('gen-1'), record('gen-2'), record('gen-3')])
    killed()
    // Records that were not yet removed from the spool come again, with others.
    const second = start()
    second.add([record('gen-1'), record('gen-2'), record('gen-3'), record('gen-4')])
    await second.close()
    const full = objects(out)
    t.same(
      [...full.values()].toSorted((one, other) => one.length - other.length),
      [
        ['gen-1', 'gen-2', 'gen-3'],
        ['gen-1', 'gen-2', 'gen-3', 'gen-4'],
      ],
    )

    const third = start()
    third.add([record('gen-1')])
    await third.run()
    for (const [name, had] of full) t.same(objects(out).get(name), had, `${name} is as it was`)
    t.equal(objects(out).size, 3)

    third.add([record('gen-1'), record('gen-2'), record('gen-3'), record('gen-4')])
    await third.close()
    t.equal(objects(out).size, 3, 'the same records have the same name')
  },
)

t.test('a disk that takes nothing costs a bounded memory, and no line is torn', async t => {
  const root = t.testdir({})
  const out = join(root, 'out')
  const state = join(root, 'state')
  const { start, lines, clock } = world(t, { url: `file:${out}` }, root, { maxHeldBytes: 20_000 })
  const running = start()
  running.add([record('gen-0')])
  const open = join(state, readdirSync(state).find(name => name.startsWith('open-')) ?? '')
  await running.run()
  mkdirSync(open)
  const sent = 200
  for (let n = 1; n <= sent; n++) running.add([record(`gen-${n}`)])
  t.ok(running.waitingBytes <= 20_000 && running.waitingBytes > 10_000)
  t.ok(running.lostRecords > 0)
  t.equal(running.lagSeconds, 5)
  clock.advance(1_000)
  await running.run()
  rmdirSync(open)
  running.add([record('gen-last')])
  await running.run()
  const told = [...objects(out).values()].flat()
  t.equal(told.length + running.lostRecords, sent + 2, 'each is there or counted')
  t.equal(running.waitingBytes, 0)
  t.equal(running.lagSeconds, 0)
  t.same(lines, [
    'cannot export usage; records are kept on disk',
    'export buffer full; dropping usage records from this export',
    'exporting usage again',
  ])
  await running.close()
})

t.test('a destination that is away costs a bounded part of the disk', async t => {
  let isAway = true
  const put: string[] = []
  const destination = {
    label: 'away',
    put: async (_: string, body: Buffer) => {
      if (isAway) throw new Error('away')
      put.push(body.toString())
    },
  }
  const { start, root } = world(t, { url: 'file:unused' }, t.testdir({}), {
    destination,
    maxWaitingBytes: 30_000,
  })
  const running = start()
  for (let n = 0; n < 300; n++) {
    running.add([record(`gen-${n}`)])
    if (n % 10 === 0) await running.run()
  }
  const bytes = readdirSync(join(root, 'state'))
    .map(name => readFileSync(join(root, 'state', name)).length)
    .reduce((sum, size) => sum + size, 0)
  t.ok(bytes <= 31_000 && bytes > 20_000, `${bytes} bytes`)
  t.ok(running.waitingBytes <= 30_000)
  isAway = false
  await running.run()
  t.equal(ids(put).length + running.lostRecords, 300)
  running.add([record('gen-after')])
  await running.close()
  t.ok(ids(put).includes('gen-after'), 'and it goes on')
})

t.test('an empty secret signs nothing, and nothing is sent without a signature', async t => {
  const root = t.testdir({ secret: '\n' })
  const { start, lines } = world(t, { url: 'http://127.0.0.1:9/x', secretFile: join(root, 'secret') }, root)
  const running = start()
  running.add([record('gen-1')])
  await running.close()
  t.equal(running.lostRecords, 0)
  t.same(lines, ['cannot export usage; records are kept on disk'])
})
