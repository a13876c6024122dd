/** Checks against a gateway with one planted fault at a time: each is found, and none is seen where there is none. */
import t, { type Test } from 'tap'
import { plain } from '../../../src/apps/commands/terminal/text.ts'
import { waitingClock } from '../../../src/apps/commands/waiting-clock.ts'
import { FaultProvider, type ProveOptions, prove } from '../../../src/apps/prove/prove.ts'
import type { ProveReport } from '../../../src/apps/prove/report.ts'
import { BrokenGateway, FAULTS, KEY, type PlantedFault, SECOND_KEY } from './broken-gateway.ts'

/** The checks that have to fail; a warning is enough for those that only advise. */
const FOUND_BY: Readonly<Record<PlantedFault, readonly string[]>> = {
  'answers as text': ['reply.status'],
  'no usage': ['reply.usage', 'reply.schema'],
  'wrong total': ['reply.usage'],
  'no created time': ['reply.schema'],
  'loses the first character': ['upstream.text'],
  'streams as text/plain': ['stream.type'],
  'buffers the stream': ['upstream.at-once'],
  'sends each event one late': ['upstream.at-once'],
  'cuts the end of streams': ['stream.end'],
  'no blank line at the end': ['stream.frames'],
  'no event names': ['stream.names'],
  'numbers begin with one': ['stream.sequence'],
  'loses a delta': ['upstream.stream-text'],
  'loses the done event of items': ['stream.items'],
  'loses the added event of parts': ['stream.parts'],
  'terminal event twice': ['stream.terminal'],
  'another id at the end': ['stream.ids'],
  'no output at the end': ['stream.final'],
  'no [DONE]': ['stream.done'],
  'usage in every chunk': ['stream.usage'],
  'two finish reasons': ['stream.finish'],
  'an id for each chunk': ['stream.chunks'],
  'breaks the arguments of calls': ['stream.call'],
  'bad JSON is 500': ['errors.bad-json'],
  'unknown models are 500': ['errors.unknown-model'],
  'refuses streams after 200': ['errors.unknown-model-stream'],
  'needs no key': ['errors.missing-key', 'errors.wrong-key'],
  'errors are text': ['errors.envelope'],
  'sends the key back': ['errors.disclosure'],
  'GET is 500': ['errors.wrong-method'],
  'unknown paths are 200': ['errors.unknown-path'],
  'never says 100': ['framing.expect'],
  'needs no host': ['framing.no-host'],
  'closes without a word': ['framing.keep-alive'],
  'failures of the provider are 200': ['upstream.failure', 'upstream.failure-stream'],
  'limits of the provider are 500': ['upstream.rate-limit'],
  'garbage of the provider is 200': ['upstream.garbage'],
  'cut streams end well': ['upstream.cut', 'upstream.stops'],
  'cut streams just end': ['upstream.cut', 'upstream.stops'],
  'passes broken events on': ['upstream.broken-event'],
  'breaks characters': ['upstream.odd-bytes'],
  'loses large events': ['upstream.huge-event'],
  'one request at a time': ['upstream.silence'],
  'fails after an abort': ['chaos.aborts'],
  'mixes answers': ['chaos.parallel'],
  'restarts cut streams': ['chaos.restart'],
  'kept answers have ids of their own': ['retries.kept', 'retries.kept-stream'],
  'keeps no streams': ['retries.kept-stream', 'retries.running-stream'],
  'keeps answers only at their end': ['retries.running', 'retries.running-stream'],
  'keeps answers by their key alone': ['retries.other-body'],
  'gives kept answers to anybody': ['retries.wrong-key', 'retries.second-key'],
  'keeps failures': ['retries.failure'],
  'goes on from the beginning': ['continued.text', 'continued.end'],
  'goes on with what is repeated': ['continued.repeated'],
  'a second break ends well': ['continued.twice'],
  'goes on with calls': ['continued.call'],
  'goes on with documents': ['continued.json'],
}

/** Habits that a client meets when a gateway passes on what its provider sends. */
const PASSED_ON: readonly string[] = [
  'habits.arguments-as-object',
  'habits.call-opened-with-braces',
  'habits.calls-of-one-id',
  'habits.calls-without-index',
  'habits.content-of-parts',
  'habits.end-without-done',
  'habits.end-without-finish',
  'habits.finish-of-failure',
  'habits.finished-and-silent',
  'habits.late-zero-usage',
  'habits.no-space-after-data',
  'habits.text-at-the-end',
  'habits.usage-in-a-choice',
  'receivers.call-ids-again',
  'receivers.half-a-character',
  'receivers.message-between-outputs',
]

/** Of a gateway without faults; a fault may be waited for less long. */
const GATE_MS = { patient: 20_000, short: 200 } as const

interface Proving {
  readonly report: ProveReport
  readonly gateway: BrokenGateway
}

async function proving(
  t: Test,
  fault: PlantedFault | null,
  options: Partial<ProveOptions> = {},
  gateMs: number = GATE_MS.patient,
): Promise<Proving> {
  const provider = new FaultProvider(waitingClock, gateMs)
  await provider.listen(0)
  const gateway = new BrokenGateway(fault, provider.url)
  const url = await gateway.listen()
  t.teardown(async () => {
    await gateway.close()
    await provider.close()
  })
  const restart = `fetch(${JSON.stringify(url.replace('/v1', '/restart'))}).then(() => process.exit(0))`
  const report = await prove(
    {
      url,
      key: KEY,
      headers: [],
      model: null,
      limits: { requests: 1_000, concurrency: 5, seconds: 600 },
      provider,
      only: null,
      client: null,
      restartCommand: `'${process.execPath}' -e '${restart}'`,
      secondKey: SECOND_KEY,
      directUrl: null,
      pid: null,
      version: '0.0.0',
      plain,
      clock: waitingClock,
      ...options,
    },
    { begins: () => undefined, onResult: () => undefined },
  )
  return { report, gateway }
}

/** All checks but those of habits, which a gateway that passes replies on as they are does not meet. */
const PROMISES = [
  'reply',
  'stream',
  'errors',
  'framing',
  'sdk',
  'upstream',
  'retries',
  'continued',
  'chaos',
  'figures',
]

t.test('a gateway without a fault passes every check', async t => {
  const { report } = await proving(t, null, { only: PROMISES, pid: process.pid })
  for (const { id, dialect, status, seen } of report.checks) {
    // It lets streams of chat completions go on, and no others.
    const isOffered = dialect === 'chat' || !id.startsWith('continued.')
    t.equal(status, isOffered ? 'pass' : 'skipped', `${id} ${dialect}: ${seen}`)
  }
  t.ok(report.checks.length > 100)
  t.same(report.dialects, ['responses', 'chat'])
  t.equal(report.model, 'prove')
  t.match(report.figures.firstEvent, [{ dialect: 'responses', direct: { samples: 15 } }, { dialect: 'chat' }])
  t.match(report.figures.cpu, [{ pid: process.pid, streams: 10 }, { dialect: 'chat' }])
})

t.test('habits of providers are found in a gateway that passes replies on as they are', async t => {
  const { report } = await proving(t, null, { only: ['habits', 'receivers'] }, GATE_MS.short)
  const found = report.checks.filter(({ status }) => status === 'fail' || status === 'warning')
  t.same([...new Set(found.map(({ id }) => id))].sort(), PASSED_ON)
  for (const { id, dialect, status, seen } of report.checks)
    if (status === 'skipped') t.match(seen, /^the gateway asks this provider by/, `${id} ${dialect}`)
})

for (const fault of FAULTS) {
  t.test(`a planted fault is found: ${fault}`, async t => {
    const wanted = FOUND_BY[fault]
    const { report } = await proving(t, fault, { only: wanted, silenceMs: 2_000 }, GATE_MS.short)
    for (const id of wanted) {
      const made = report.checks.filter(check => check.id === id)
      const found = made.filter(({ status }) => status === 'fail' || status === 'warning')
      t.ok(found.length > 0, `${id}: ${made.map(({ status, seen }) => `${status}, ${seen}`).join('; ')}`)
      t.ok(
        found.every(({ repeat }) => repeat?.includes('127.0.0.1') === true),
        'each says how to repeat it',
      )
    }
  })
}
