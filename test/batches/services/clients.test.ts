/** The clients of batch services, against those of the simulated provider, which the official SDKs speak too. */
import t, { type Test } from 'tap'
import type { SimJobFault } from '../../../src/apps/simulator/batch-jobs.ts'
import { createSim } from '../../../src/apps/simulator/simulator.ts'
import type { GatewayError } from '../../../src/base/errors.ts'
import type { BatchService, EndedLine } from '../../../src/batches/services/service.ts'
import { isLasting } from '../../../src/batches/services/service-calls.ts'
import { BATCH_SERVICES, batchServiceOf } from '../../../src/batches/services/table.ts'
import { BATCH_FORMATS, type BatchFormat } from '../../../src/protocol/provider.ts'
import { callsTo, ended, linesOf, submit, wireFor } from './batch-service.ts'

async function start(t: Test, format: BatchFormat, fault: SimJobFault | null = null) {
  const world = { fault }
  const sim = createSim({ jobFaultOf: () => world.fault, keepRequests: 1_000 })
  const { url } = await sim.listen()
  t.teardown(() => sim.close())
  const version = format === 'google-gemini' ? 'v1beta' : 'v1'
  const service: BatchService = BATCH_SERVICES[format]
  return { sim, url, service, world, ...callsTo(t, `${url}/${version}`, format) }
}

/** The text of a reply, in whatever format. */
function textIn({ end }: EndedLine): string {
  return end.kind === 'reply' ? (/(?:Hello|Hi) \d+/.exec(end.body)?.[0] ?? end.body) : end.kind
}

const TEXTS = ['Hello 0', 'Hello 1', 'Hello 2', 'Hello 3', 'Hello 4']

/** What the service says of lines, in the order of the lines. */
function byLine(lines: readonly EndedLine[]): Record<string, string> {
  const sorted = lines.toSorted((one, other) => (one.id < other.id ? -1 : 1))
  return Object.fromEntries(
    sorted.map(line => [
      line.id,
      line.end.kind === 'reply' && line.end.status !== 200 ? `status ${line.end.status}` : textIn(line),
    ]),
  )
}

for (const format of BATCH_FORMATS) {
  t.test(format, async t => {
    t.test('a job is submitted, ends, and has a reply for each line', async t => {
      const { service, calls, sim, notices } = await start(t, format)
      const name = await submit(service, calls, format, TEXTS)
      t.same(await service.state(calls, name), { kind: 'running' })
      t.same(await ended(service, calls, name), { kind: 'ended', error: null, unrun: null, isBusy: false })
      const lines = await linesOf(service, calls, name)
      t.same(byLine(lines), Object.fromEntries(TEXTS.map((text, at) => [`mark-0-${at}`, text])))
      const [job] = sim.batches.jobs.values()
      t.equal(job?.lines.length, 5)
      t.same(notices, [])
      for (const { headers } of sim.requests) t.match(headers.authorization, /^Bearer sk-secret/)
    })

    t.test('each line has its own end, in any order, and what is no line is left out', async t => {
      const faults = [
        null,
        'error',
        'overloaded',
        'expired',
        'missing',
        'twice',
        'garbage',
        'foreign',
      ] as const
      const { service, calls, notices } = await start(t, format, {
        line: at => faults[at] ?? null,
        reversed: true,
      })
      const name = await submit(
        service,
        calls,
        format,
        faults.map((_, at) => `Hello ${at}`),
      )
      await ended(service, calls, name)
      const lines = await linesOf(service, calls, name)
      const first = new Map<string, EndedLine>()
      for (const line of lines) if (!first.has(line.id)) first.set(line.id, line)
      t.same(byLine([...first.values()]), {
        'mark-0-0': 'Hello 0',
        'mark-0-1': 'status 400',
        'mark-0-2':
          format === 'google-gemini'
            ? 'status 503'
            : format === 'anthropic-messages'
              ? 'status 529'
              : 'status 529',
        'mark-0-3': format === 'google-gemini' ? 'status 504' : 'expired',
        'mark-0-5': 'Hello 5',
        'mark-0-7': 'Hello 7',
        'nobody-7': 'Hello 7',
      })
      t.equal(lines.filter(({ id }) => id === 'mark-0-5').length, 2)
      t.same(notices, ['provider batch service sent unreadable result lines; they were skipped'])
    })

    t.test('a job fails, or is busy, or expires', async t => {
      if (format === 'anthropic-messages') {
        t.pass('a message batch has no such end: each line has its own')
        return
      }
      const { service, calls, world } = await start(t, format, { end: 'failed' })
      const failed = await ended(service, calls, await submit(service, calls, format, ['Hello 0']))
      t.match(failed, { kind: 'ended', error: { code: 'invalid_request' }, isBusy: false })
      world.fault = { end: 'busy' }
      const busy = await ended(service, calls, await submit(service, calls, format, ['Hello 0']))
      t.match(busy, { kind: 'ended', isBusy: true })
      world.fault = { end: 'expired', done: 1 }
      const name = await submit(service, calls, format, TEXTS.slice(0, 2))
      t.match(await ended(service, calls, name), { kind: 'ended', error: null, unrun: 'expired' })
      t.equal(byLine(await linesOf(service, calls, name))['mark-0-0'], 'Hello 0', 'what had ended is there')
    })

    t.test('a job is cancelled; lines that had ended keep their reply', async t => {
      const { service, calls } = await start(t, format, { polls: Number.POSITIVE_INFINITY, done: 2 })
      const name = await submit(service, calls, format, TEXTS)
      t.same(await service.state(calls, name), { kind: 'running' })
      await service.cancel(calls, name)
      const unrun = format === 'anthropic-messages' ? null : 'cancelled'
      t.match(await ended(service, calls, name), { kind: 'ended', error: null, unrun })
      const lines = byLine(await linesOf(service, calls, name))
      t.equal(lines['mark-0-1'], 'Hello 1')
      t.match(lines['mark-0-2'] ?? 'cancelled', 'cancelled')
      const late: GatewayError = await service.cancel(calls, name).then(null, error => error)
      t.equal(isLasting(late), true, 'one that has ended cannot be cancelled')
    })

    t.test('a job whose name never came is found again by its mark', async t => {
      const { service, calls, sim } = await start(t, format)
      const lost = { sinceMs: Date.now(), lines: 2, knownNames: new Set<string>() }
      t.equal(await service.find(calls, { ...lost, mark: 'mark-1' }), 'none', 'there is no job at all')
      for (let other = 100; other < 205; other++)
        await submit(service, calls, format, ['Hi 1'], { mark: `mark-${other}` })
      const name = await submit(service, calls, format, ['Hello 0', 'Hello 1'], { mark: 'mark-1' })
      for (let other = 300; other < 405; other++)
        await submit(service, calls, format, ['Hi 1'], { mark: `mark-${other}` })
      const first = await service.find(calls, { ...lost, mark: 'mark-1' })
      // A message batch does not say what it holds before it has ended.
      if (format === 'anthropic-messages') t.equal(first, 'unsure')
      await ended(service, calls, name)
      t.same(await service.find(calls, { ...lost, mark: 'mark-1' }), { name })
      t.equal(await service.find(calls, { ...lost, mark: 'mark-9' }), 'none')
      t.equal(await service.find(calls, { ...lost, mark: 'mark' }), 'none', 'a longer mark is another one')
      const knownNames = new Set([name])
      if (format === 'anthropic-messages')
        t.equal(
          await service.find(calls, { ...lost, mark: 'mark-1', knownNames }),
          'none',
          'it is one of the others',
        )
      // A job is not older than the attempt to submit it.
      const asked = sim.state.requests
      await service.find(calls, { ...lost, mark: 'mark-9', sinceMs: Date.now() + 86_400_000 })
      t.ok(sim.state.requests - asked <= 1, 'older ones are not asked for')
    })

    t.test('what a service keeps of a job is removed, once and again', async t => {
      const { service, calls, sim } = await start(t, format)
      const name = await submit(service, calls, format, TEXTS)
      await ended(service, calls, name)
      await service.remove(calls, name)
      t.same([...sim.batches.files.keys()], [], 'no request is left')
      const gone = await linesOf(service, calls, name).then(
        lines => lines,
        (error: GatewayError) => error.metadata?.['provider_status'],
      )
      t.equal(gone, 404, 'nor a reply')
      await service.remove(calls, name)
    })

    t.test('refusals say whether it makes sense to ask again', async t => {
      const { service, calls, world } = await start(t, format)
      for (const [status, lasting] of [
        [400, true],
        [401, true],
        [403, true],
        [404, true],
        [413, true],
        [429, false],
        [500, false],
        [503, false],
        [529, false],
      ] as const) {
        world.fault = { status }
        const error: GatewayError = await submit(service, calls, format, ['Hi']).then(null, thrown => thrown)
        t.equal(isLasting(error), lasting, `${status}`)
        t.equal(error.metadata?.['provider_name'], 'Acme')
      }
      const unknown: GatewayError = await service
        .state(calls, format === 'google-gemini' ? 'batches/none' : 'none')
        .then(null, thrown => thrown)
      t.equal(isLasting(unknown), true)
    })

    t.test('results that break off are an error, after what came', async t => {
      const { service, calls } = await start(t, format, { breaksAfter: 3 })
      const name = await submit(service, calls, format, TEXTS)
      await ended(service, calls, name)
      const seen: EndedLine[] = []
      await t.rejects(
        (async () => {
          for await (const page of service.lines(calls, name)) seen.push(...page)
        })(),
        { code: 'provider_unavailable' },
      )
      t.equal(seen.length, 3)
    })

    t.test('odd texts come back as they were', async t => {
      const { service, calls } = await start(t, format)
      const odd = ['quote " and \\', 'line\r\n--sluice-mark-0--\r\n', '\u2028\u2029 😀', '--sluice-mark-0']
      const name = await submit(service, calls, format, odd)
      await ended(service, calls, name)
      const lines = await linesOf(service, calls, name)
      for (const [at, text] of odd.entries()) {
        const line = lines.find(({ id }) => id === `mark-0-${at}`)
        const body = line?.end.kind === 'reply' ? line.end.body : ''
        t.match(body, JSON.stringify(text).slice(1, -1))
      }
    })
  })
}

t.test('requests with headers of their own are not for a job', async t => {
  const beta = { 'anthropic-beta': 'compact-2026' }
  for (const format of BATCH_FORMATS) {
    const service = BATCH_SERVICES[format]
    const wire = wireFor(format, 'Hi')
    t.equal(service.accepts(wire), true)
    t.equal(service.accepts({ ...wire, headers: { ...wire.headers, ...beta } }), false)
  }
  t.equal(batchServiceOf('toString'), null)
  t.equal(batchServiceOf('bedrock-converse'), null)
})
