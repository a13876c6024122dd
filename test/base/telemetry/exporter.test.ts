/** The exporter against collectors that are dead, slow, refuse, or come back. */
import { randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import t from 'tap'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import { createLog } from '../../../src/base/log/log.ts'
import type { EndedTrace } from '../../../src/base/telemetry/ended-trace.ts'
import { rejectedSpans } from '../../../src/base/telemetry/otlp/answer.ts'
import { TraceExporter } from '../../../src/base/telemetry/otlp/exporter.ts'
import { exportTerms } from '../../../src/base/telemetry/otlp/terms.ts'
import { startCollector } from '../../support/collector.ts'
import { EXCHANGE_LINE } from '../../support/exchange-line.ts'
import { freePort } from '../../support/free-port.ts'
import { listening } from '../../support/listening.ts'
import { awaited, until } from '../../support/patience.ts'
import { TestClock } from '../../support/test-clock.ts'

const trace = (number: number): EndedTrace => ({
  traceId: number.toString(16).padStart(32, '0'),
  spanId: number.toString(16).padStart(16, '0'),
  parentId: null,
  state: null,
  isSampled: true,
  epochMs: 1_700_000_000_000,
  startedMs: 0,
  endedMs: 1,
  line: EXCHANGE_LINE,
  stages: [],
  exchanges: [],
  leftOut: 0,
})
const traces = (count: number): EndedTrace[] => Array.from({ length: count }, (_, at) => trace(at + 1))

function start(
  url: string,
  clock: Clock = systemClock,
  timeoutMs = 1_000,
  headers: Readonly<Record<string, string>> = {},
) {
  const counts = { sent: 0, refused: 0, dropped: 0 }
  const lines: string[] = []
  const terms = exportTerms(
    {
      endpoint: url,
      tracesUrl: null,
      protocol: 'http/protobuf',
      timeoutMs,
      compression: 'none',
      headers,
      serviceName: 'sluice',
      resource: {},
    },
    '1',
  )
  if (terms === null) throw new TypeError('traces are on')
  const exporter = new TraceExporter(
    {
      clock,
      log: createLog('info', { write: line => void lines.push(line) }),
      counts: { count: (outcome, many) => (counts[outcome] += many) },
    },
    terms,
  )
  return { exporter, counts, lines }
}

t.test('spans leave in batches of at most 512, in their order', async t => {
  const collector = await startCollector()
  const { exporter, counts, lines } = start(collector.url)
  exporter.add(traces(1_100), 0)
  await until('all spans', () => counts.sent === 1_100)
  t.equal(collector.bodies.length, 3)
  t.same(
    collector.spans.map(({ spanId }) => Number.parseInt(spanId, 16)),
    Array.from({ length: 1_100 }, (_, at) => at + 1),
  )
  t.same(lines, [])
  await exporter.close()
  await collector.close()
})

t.test('a dead collector costs the spans that do not fit, which are counted, and one log line', async t => {
  const clock = new TestClock(0)
  const { exporter, counts, lines } = start(`http://127.0.0.1:${await freePort()}`, clock)
  for (let round = 0; round < 40; round++) exporter.add(traces(500), 0)
  t.ok(exporter.waiting <= 17_000, 'bounded')
  t.ok(counts.dropped >= 20_000 - 17_000)
  const before = counts.dropped
  await until('the batch is given up', () => {
    clock.advance(1_000)
    return counts.dropped > before
  })
  t.equal(counts.dropped, before + 512)
  t.equal(lines.filter(line => line.includes('cannot send traces')).length, 1)
  t.notMatch(lines.join(), '/v1/traces')
  const closing = exporter.close()
  clock.advance(2_000)
  await closing
  t.equal(counts.dropped, 20_000)
  t.equal(exporter.waiting, 0)
})

t.test('a collector that refuses gets nothing twice; one that is busy is asked again', async t => {
  const collector = await startCollector()
  const clock = new TestClock(0)
  const { exporter, counts, lines } = start(collector.url, clock, 86_400_000)
  collector.statuses.push(400)
  exporter.add(traces(512), 0)
  await until('the refusal', () => counts.refused === 512)
  t.equal(collector.headers.length, 1)
  collector.statuses.push(503, 429)
  exporter.add(traces(512), 0)
  await until('the batch is taken', () => {
    clock.advance(1_000)
    return counts.sent === 512
  })
  t.equal(collector.headers.length, 4)
  t.equal(lines.filter(line => line.includes('sending traces to the collector again')).length, 1)
  await exporter.close()
  await collector.close()
})

t.test('a collector that hangs is left after its time, and the process ends without it', async t => {
  const collector = await startCollector()
  const clock = new TestClock(0)
  const { exporter, counts } = start(collector.url, clock)
  collector.statuses.push('hang', 'hang', 'hang', 'hang')
  exporter.add(traces(512), 7)
  t.equal(counts.dropped, 7, 'those that the thread had no room for')
  await until('the first try', () => collector.headers.length === 1)
  await until('the batch is dropped', () => {
    clock.advance(1_000)
    return counts.dropped === 519
  })
  t.equal(collector.headers.length, 4)
  await exporter.close()
  await collector.close()
})

t.test('a collector that fails gets each batch once, and its spans count as refused', async t => {
  const collector = await startCollector()
  const { exporter, counts, lines } = start(collector.url)
  collector.statuses.push(500, 404, 301)
  for (let batch = 1; batch <= 3; batch++) {
    exporter.add(traces(512), 0)
    await until('the refusal', () => counts.refused === batch * 512)
  }
  t.equal(collector.headers.length, 3)
  t.same(counts, { sent: 0, refused: 1_536, dropped: 0 })
  t.equal(lines.length, 1)
  await exporter.close()
  await collector.close()
})

t.test('an answer in many short chunks is dropped before it ends', async t => {
  const left = Promise.withResolvers<void>()
  const server = createServer((request, response) => {
    request.resume()
    response.on('close', left.resolve)
    for (let chunk = 0; chunk < 20_000; chunk++) response.write(' ')
  })
  const { url } = await listening(server, t)
  const { exporter, counts } = start(url, new TestClock(0))
  exporter.add(traces(512), 0)
  await awaited('the end of the connection', left.promise)
  await until('the batch', () => counts.sent === 512)
  await exporter.close()
})

t.test('spans that a collector leaves out of a batch that it takes count as refused', async t => {
  const collector = await startCollector()
  const { exporter, counts } = start(collector.url)
  // rejected_spans 300 and a message; then more than were sent.
  collector.answers.push(Buffer.from('0a0608ac0212016e', 'hex'), Buffer.from('0a0408ffff03', 'hex'))
  exporter.add(traces(512), 0)
  await until('the first batch', () => counts.sent + counts.refused === 512)
  t.same(counts, { sent: 212, refused: 300, dropped: 0 })
  exporter.add(traces(512), 0)
  await until('the second batch', () => counts.sent + counts.refused === 1_024)
  t.same(counts, { sent: 212, refused: 812, dropped: 0 })
  await exporter.close()
  await collector.close()
})

t.test(
  'the answer of a collector is read as its protocol says, and bytes that are none say nothing',
  async t => {
    const json = (text: string) => rejectedSpans(Buffer.from(text), 'http/json')
    t.equal(json('{"partialSuccess":{"rejectedSpans":"7","errorMessage":"quota"}}'), 7)
    t.equal(json('{"partialSuccess":{"rejectedSpans":7}}'), 7)
    for (const text of [
      '',
      '{}',
      'null',
      '[]',
      '{"partialSuccess":null}',
      '<html>',
      '{"partialSuccess":{"rejectedSpans":-1}}',
    ])
      t.equal(json(text), 0, text)
    const protobuf = (hex: string) => rejectedSpans(Buffer.from(hex, 'hex'), 'http/protobuf')
    t.equal(protobuf('0a03089601'), 150)
    t.equal(protobuf('0a0612016e089601'), 150, 'the message may stand first')
    for (const hex of [
      '',
      '0a00',
      '0a',
      '0aff',
      '08ff',
      '0a02089',
      'ffffffffffffffffffffff',
      '0a0b08ffffffffffffffffff01',
    ])
      t.equal(protobuf(hex), 0, hex)
    const odd = Array.from({ length: 2_000 }, (_, round) => randomBytes(round % 40)).filter(
      noise => !(rejectedSpans(noise, 'http/protobuf') >= 0 && rejectedSpans(noise, 'http/json') >= 0),
    )
    t.same(odd, [])
  },
)

t.test(
  'while a collector keeps silent, memory is bounded and every span that finds no room is counted',
  async t => {
    const collector = await startCollector()
    const clock = new TestClock(0)
    const { exporter, counts } = start(collector.url, clock)
    collector.statuses.push('hang', 'hang', 'hang', 'hang')
    for (let message = 0; message < 100; message++) exporter.add(traces(1_000), 0)
    await until('the first try', () => collector.headers.length === 1)
    t.ok(exporter.waiting <= 16_384 + 1_000, `${exporter.waiting} wait`)
    const { sent, refused, dropped } = counts
    t.equal(
      sent + refused + dropped + exporter.waiting + 512,
      100_000,
      'each span waits, is on its way, or is counted',
    )
    t.equal(collector.headers.length, 1, 'one request at a time')
    const closing = exporter.close()
    clock.advance(2_000)
    await closing
    t.same(counts, { sent: 0, refused: 0, dropped: 100_000 })
    await collector.close()
  },
)

t.test('headers that no request can have cost the traces, and not the process', async t => {
  const { exporter, counts, lines } = start('http://127.0.0.1:1', systemClock, 1_000, {
    authorization: 'Bearer x\n',
  })
  exporter.add(traces(512), 0)
  await until('all are refused', () => counts.refused === 512)
  t.equal(lines.length, 1)
  t.match(lines[0], 'cannot send traces to the collector')
  await exporter.close()
})
