/** Alerts of three instances on one store, delivered to a real receiver that is down for a while. */
import { createHmac } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { keyRecord } from '../../../src/callers/api-key.ts'
import type { LoopNote } from '../../../src/pipeline/loops.ts'
import { type AlertEvent, alertBody, alertId, bodyAs } from '../../../src/process/alerts/alert-body.ts'
import { alertOfLoop } from '../../../src/process/alerts/loop-alert.ts'
import { Outbox } from '../../../src/process/alerts/outbox.ts'
import { createReceiver, type ReceiverRow } from '../../../src/process/alerts/receiver.ts'
import { openStore } from '../../../src/storage/open.ts'
import { listening } from '../../support/listening.ts'
import { until } from '../../support/patience.ts'
import { TestClock } from '../../support/test-clock.ts'

const SPENT: AlertEvent = {
  type: 'budget.80',
  object: { kind: 'key', id: 'f'.repeat(64), name: 'nightly <job>', workspaceId: 'ws_1' },
  window: '2026-01-01T00:00:00.000Z 1000000',
  data: { limit_usd: 1, spent_usd: 0.8 },
}

interface Got {
  readonly body: {
    readonly id: string
    readonly type: string
    readonly text?: string
    readonly object: unknown
  }
  readonly raw: string
  readonly signature: string
}

const folder = (t: Test): string => {
  const path = mkdtempSync(join(tmpdir(), 'sluice-alerts-'))
  t.teardown(() => rmSync(path, { recursive: true, force: true }))
  return path
}

/** A receiver that answers with `status`. */
async function receiver(t: Test) {
  const got: Got[] = []
  const state = { got, status: 200, url: '' }
  const server = createServer((request, response) => {
    let raw = ''
    request.setEncoding('utf8').on('data', (more: string) => {
      raw += more
    })
    request.on('end', () => {
      const signature = String(request.headers['x-sluice-signature'] ?? '')
      got.push({ raw, signature, body: JSON.parse(raw) as Got['body'] })
      response.writeHead(state.status, { location: 'http://127.0.0.1:1/' }).end()
    })
  })
  const { port } = await listening(server, t)
  state.url = `http://127.0.0.1:${port}/hook`
  return state
}

async function nodes(t: Test, rows: readonly ReceiverRow[], count = 3) {
  const url = `sqlite:${join(folder(t), 'gateway.db')}`
  const clock = new TestClock()
  const lines: unknown[] = []
  const log = { fault: () => undefined, notice: (...line: unknown[]) => void lines.push(line) }
  const start = async () => {
    const store = await openStore(url)
    const receivers = rows.map(row => createReceiver(row, clock))
    const outbox = new Outbox({ store, receivers, gateway: 'local', clock, log })
    t.teardown(() => outbox.close().then(() => store.close()))
    return outbox
  }
  return { clock, lines, url, start, outboxes: await Promise.all(Array.from({ length: count }, start)) }
}

t.test('three instances and a restart tell an event once, signed', async t => {
  const hook = await receiver(t)
  const secretFile = join(folder(t), 'secret')
  writeFileSync(secretFile, 'first\nsecond\n')
  const { clock, start, outboxes } = await nodes(t, [{ url: hook.url, secretFile, allowPrivate: true }])
  for (const outbox of outboxes) outbox.raise(SPENT)
  await Promise.all(outboxes.map(outbox => outbox.run()))
  const again = await start()
  again.raise(SPENT)
  clock.advance(61_000)
  await again.run()
  t.equal(hook.got.length, 1)
  const [first] = hook.got
  if (first === undefined) return
  const { body, raw, signature } = first
  t.match(body, {
    id: alertId(SPENT),
    type: 'budget.80',
    gateway: 'local',
    created: /^2026-01-02T/,
    object: { kind: 'key', id: SPENT.object.id, name: 'nightly <job>', workspace_id: 'ws_1' },
    data: { limit_usd: 1, spent_usd: 0.8 },
  })
  const [, seconds = '', ...signatures] =
    /^t=(\d+),v1=([0-9a-f]{64}),v1=([0-9a-f]{64})$/.exec(signature) ?? []
  t.same(
    signatures,
    ['first', 'second'].map(secret => createHmac('sha256', secret).update(`${seconds}.${raw}`).digest('hex')),
  )
  t.equal(Number(seconds), Math.floor(Date.UTC(2026, 0, 2, 3, 4, 5) / 1000))
})

t.test('a circle is told once for each kind of loop and hour, with the name of its key', async t => {
  const hook = await receiver(t)
  const { clock, url, outboxes } = await nodes(t, [{ url: hook.url, allowPrivate: true }])
  const store = await openStore(url)
  t.teardown(() => store.close())
  const record = keyRecord(`sk-gw-v1-${'a'.repeat(64)}`, 'inference', { name: 'agent', clock })
  await store.keys.add(record)
  const { hash: keyHash, organizationId, workspaceId } = record
  const circle = { keyHash, organizationId, workspaceId, kind: 'repeat', times: 5, action: 'stop' } as const
  const tell = async (note: LoopNote): Promise<void> => {
    for (const outbox of outboxes)
      await alertOfLoop({ store, raise: event => outbox.raise(event), clock }, note)
    await Promise.all(outboxes.map(outbox => outbox.run()))
  }
  await tell(circle)
  await tell({ ...circle, times: 6 })
  await tell({ ...circle, kind: 'spend', times: 250, action: 'tell' })
  clock.advance(3_600_000)
  await tell(circle)
  const object = { kind: 'key', id: keyHash, name: 'agent', workspace_id: workspaceId }
  t.match(
    hook.got.map(({ body }) => body),
    [
      { type: 'loop.detected', object, data: { loop: 'repeat', times: 5, action: 'stop' } },
      { type: 'loop.detected', object, data: { loop: 'spend', usd: 2.5, action: 'tell' } },
      { type: 'loop.detected', object, data: { loop: 'repeat', times: 5, action: 'stop' } },
    ],
  )
  t.equal(hook.got.length, 3)
})

t.test(
  'an alert is not held up by a clock that was an hour ahead, at the failed try or at the start',
  async t => {
    const hook = await receiver(t)
    const { clock, outboxes, start } = await nodes(t, [{ url: hook.url, allowPrivate: true }], 1)
    clock.jump(3_600_000)
    for (const outbox of outboxes) {
      outbox.raise(SPENT)
      hook.status = 500
      await outbox.run()
      clock.jump(-3_600_000)
      hook.status = 200
      await outbox.run()
      t.equal(hook.got.length, 2, 'it is tried again at once')
    }
    const later = { ...SPENT, window: 'later' }
    clock.jump(3_600_000)
    hook.status = 500
    for (const outbox of outboxes) {
      outbox.raise(later)
      await outbox.run()
    }
    clock.jump(-3_600_000)
    hook.status = 200
    await (await start()).run()
    t.equal(hook.got.length, 4, 'the next process delivers it')
  },
)

t.test('a receiver that is down for ten minutes gets it when it is back, with a new signature', async t => {
  const hook = await receiver(t)
  const secretFile = join(folder(t), 'secret')
  writeFileSync(secretFile, 's')
  const { clock, outboxes, lines } = await nodes(t, [{ url: hook.url, secretFile, allowPrivate: true }], 1)
  const [outbox] = outboxes
  if (outbox === undefined) throw new Error('one outbox')
  outbox.raise(SPENT)
  hook.status = 302
  for (let second = 0; second < 600; second += 5) {
    await outbox.run()
    clock.advance(5_000)
  }
  const tries = hook.got.length
  t.ok(tries > 3 && tries < 15, `${tries} tries, further and further apart`)
  hook.status = 204
  for (let second = 0; second < 600; second += 5) {
    await outbox.run()
    clock.advance(5_000)
  }
  t.equal(hook.got.length, tries + 1)
  t.equal(new Set(hook.got.map(({ raw }) => raw)).size, 1, 'always the same body')
  t.equal(new Set(hook.got.map(({ signature }) => signature)).size, tries + 1, 'never the same signature')
  const host = new URL(hook.url).host
  t.match(lines, [
    ['alerts', 'cannot deliver an alert; trying again later', { host, why: 'status 302' }],
    ['alerts', 'alert delivered after retries', { host }],
  ])
})

t.test('Slack gets a text without links, and only the events that it asked for', async t => {
  const hook = await receiver(t)
  const urlFile = join(folder(t), 'url')
  writeFileSync(urlFile, `${hook.url}\n`)
  const { outboxes } = await nodes(
    t,
    [{ urlFile, format: 'slack', events: ['budget.80'], allowPrivate: true }],
    1,
  )
  for (const outbox of outboxes) {
    outbox.raise({ ...SPENT, type: 'provider.down' })
    outbox.raise(SPENT)
    await outbox.run()
  }
  t.same(
    hook.got.map(({ body }) => body),
    [{ text: 'Sluice local: budget.80, key nightly &lt;job&gt;, limit_usd 1, spent_usd 0.8' }],
  )
  t.equal(hook.got[0]?.signature, '')
})

t.test('private addresses and plain HTTP need leave, and no message repeats an address', async t => {
  const clock = new TestClock()
  t.throws(() => createReceiver({ url: 'http://hooks.example/s3cret' }, clock), {
    name: 'ReceiverError',
    message: /^url leads to plain HTTP/,
  })
  const inside = createReceiver({ url: 'https://127.0.0.1/s3cret' }, clock)
  t.match(await inside.deliver('{}'), { ok: false, reason: /^(?!.*s3cret)./ })
  t.throws(() => createReceiver({ urlFile: '/nowhere/s3cret' }, clock), {
    message: 'urlFile cannot be read (ENOENT)',
  })
})

t.test('what waits for a receiver that is away does not hold up the others', async t => {
  const [away, well] = [await receiver(t), await receiver(t)]
  away.status = 500
  const rows = [
    { url: away.url, allowPrivate: true, events: ['provider.down'] },
    { url: well.url, allowPrivate: true, events: ['budget.80'] },
  ] as const
  const { outboxes } = await nodes(t, rows, 1)
  const [outbox] = outboxes
  if (outbox === undefined) throw new Error('one outbox')
  for (let at = 0; at < 50; at++) outbox.raise({ ...SPENT, type: 'provider.down', window: `${at}` })
  outbox.raise(SPENT)
  await outbox.run()
  t.equal(well.got.length, 1)
})

t.test('what had no room is raised again later', async t => {
  const hook = await receiver(t)
  const { outboxes } = await nodes(t, [{ url: hook.url, allowPrivate: true }], 1)
  const [outbox] = outboxes
  if (outbox === undefined) throw new Error('one outbox')
  for (let at = 0; at < 1_000; at++) outbox.raise({ ...SPENT, window: `${at}` })
  const last = { ...SPENT, type: 'credits.low' } as const
  outbox.raise(last)
  await outbox.run()
  outbox.raise(last)
  for (let run = 0; run < 51; run++) await outbox.run()
  t.ok(hook.got.some(({ body }) => body.id === alertId(last)))
})

t.test('a receiver that is slow does not delay what another one gets', async t => {
  const well = await receiver(t)
  const asked = Promise.withResolvers<void>()
  const slow = createServer(() => asked.resolve())
  const { port } = await listening(slow, t)
  const url = `http://127.0.0.1:${port}/hook`
  const rows = [
    { url, allowPrivate: true },
    { url: well.url, allowPrivate: true },
  ]
  const { outboxes, clock } = await nodes(t, rows, 1)
  const [outbox] = outboxes
  if (outbox === undefined) throw new Error('one outbox')
  outbox.raise(SPENT)
  const first = outbox.run()
  await asked.promise
  await until('the first alert', () => well.got.length === 1)
  outbox.raise({ ...SPENT, type: 'provider.down' })
  // The next look comes by itself, although the last one waits.
  const isThere = () => {
    if (well.got.length < 2) clock.advance(10)
    return well.got.length === 2
  }
  clock.advance(1_000)
  await until('the second alert', isThere)
  t.equal(well.got[1]?.body.type, 'provider.down')
  clock.advance(10_000)
  await first
})

t.test('a database that does not answer stops the outbox only until it does', async t => {
  const hook = await receiver(t)
  const store = await openStore(`sqlite:${join(folder(t), 'gateway.db')}`)
  const clock = new TestClock()
  let hangs = true
  const alerts = {
    ...store.alerts,
    add: (...args: Parameters<typeof store.alerts.add>) =>
      hangs ? new Promise<boolean>(() => undefined) : store.alerts.add(...args),
  }
  const log = { fault: () => undefined, notice: () => undefined }
  const receivers = [createReceiver({ url: hook.url, allowPrivate: true }, clock)]
  const outbox = new Outbox({ store: { alerts }, receivers, gateway: 'local', clock, log })
  t.teardown(() => outbox.close().then(() => store.close()))
  outbox.raise(SPENT)
  const run = outbox.run()
  clock.advance(10_000)
  await run
  t.equal(hook.got.length, 0)
  hangs = false
  await outbox.run()
  t.equal(hook.got.length, 1)
})

t.test('a name begins no line of its own in a text for Slack', t => {
  const name = 'nightly\nAll is well\r\u2028\u2029\u202efrom root\u0007'
  const body = alertBody({ ...SPENT, object: { ...SPENT.object, name } }, 'local', '2026-01-02T00:00:00.000Z')
  const { text } = JSON.parse(bodyAs('slack', body)) as { text: string }
  t.equal(text, 'Sluice local: budget.80, key nightly All is well from root , limit_usd 1, spent_usd 0.8')
  t.match(JSON.parse(bodyAs('json', body)), { object: { name } }, 'the JSON has it as it is')
  t.end()
})
