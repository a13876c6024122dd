/** Streams that outlive their provider: text that breaks anywhere goes on at an endpoint of any format, as one answer. */
import assert from 'node:assert/strict'
import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { awsMessage } from '../support/aws-events.ts'
import { CLIENTS, type DialectClient, type Loose } from '../support/dialect-clients.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream } from '../support/gateway.ts'
import { goldens } from '../support/goldens.ts'
import { Draw } from '../support/mask-rounds.ts'
import { FORMATS, Parrot, Provider, parrotRows, speaking } from '../support/provider.ts'
import { recordings, withoutRecordings } from '../support/recordings.ts'
import { deltasIn, saidIn, startWorld } from '../support/world.ts'

const ALL = [...FORMATS, 'bedrock-converse'] as const
type AnyFormat = (typeof ALL)[number]
const PRICING = { prompt: '0.000001', completion: '0.00001' }
const QUESTION = '¿?'

/** Sends a reply up to a byte, and then drops the connection. */
class BreakingProvider extends Provider {
  bytes: Buffer = Buffer.alloc(0)
  cutAt = Number.POSITIVE_INFINITY
  type = 'text/event-stream'

  constructor() {
    super(() => async response => {
      response.writeHead(200, { 'content-type': this.type })
      response.write(this.bytes.subarray(0, this.cutAt))
      await turn()
      if (this.cutAt < this.bytes.length) response.destroy()
      else response.end()
    })
  }
}

/** The longest text in a body with which the whole answer begins: what it has been asked to continue. */
function askedIn(body: unknown, whole: string): string {
  if (typeof body === 'string') return body !== '' && whole.startsWith(body) ? body : ''
  if (typeof body !== 'object' || body === null) return ''
  let longest = ''
  for (const [key, inner] of Object.entries(body)) {
    if (key === 'role' || key === 'type' || key === 'model') continue
    const found = askedIn(inner, whole)
    if (found.length > longest.length) longest = found
  }
  return longest
}

/** What comes after the text that it was asked with, as a script has it, after some of that text again. */
function restOf(body: unknown, whole: string, repeats: number): string {
  const asked = askedIn(body, whole)
  const again = Math.min(repeats, asked.length)
  return whole.slice(asked.length - (again < 12 ? 0 : again))
}

async function startWorldOf(t: Pick<Test, 'teardown'>, more: Loose = {}) {
  const breaking = new BreakingProvider()
  const parrot = new Parrot()
  const script = { whole: '', repeats: 0, pieceMax: 1_000 }
  const cut = (text: string): string[] => {
    const characters = Array.from(text)
    const list: string[] = []
    for (let at = 0; at < characters.length; at += script.pieceMax)
      list.push(characters.slice(at, at + script.pieceMax).join(''))
    return list
  }
  Object.defineProperty(parrot, 'parts', {
    get: () => speaking(...cut(restOf(JSON.parse(parrot.bodies.at(-1) ?? ''), script.whole, script.repeats))),
  })
  const converse = new Provider(({ body, path }) => {
    const text = restOf(body, script.whole, script.repeats)
    const usage = { inputTokens: 3, outputTokens: 5, totalTokens: 8 }
    if (!path.endsWith('-stream')) throw new Error('only streams go on')
    const event = (type: string, data: object) => awsMessage(type, JSON.stringify(data))
    const bytes = Buffer.concat([
      event('messageStart', { role: 'assistant' }),
      ...cut(text).map(piece => event('contentBlockDelta', { contentBlockIndex: 0, delta: { text: piece } })),
      event('contentBlockStop', { contentBlockIndex: 0 }),
      event('messageStop', { stopReason: 'end_turn' }),
      event('metadata', { usage, metrics: { latencyMs: 1 } }),
    ])
    return response => {
      response.writeHead(200, { 'content-type': 'application/vnd.amazon.eventstream' })
      response.end(bytes)
    }
  })
  const rows = parrotRows(await parrot.listen())
  const baseUrl = await breaking.listen()
  const world = await startWorld({
    continueStreams: true,
    routing: { breakerFailures: null },
    providers: [
      ...rows.providers.map(row => ({ ...row, continues: 'last-message' })),
      { slug: 'breaks', format: 'openai-chat', baseUrl, apiKey: 'k' },
      {
        slug: 'aws',
        format: 'bedrock-converse',
        baseUrl: await converse.listen(),
        apiKey: 'k',
        continues: 'last-message',
      },
    ],
    models: ALL.flatMap(from =>
      ALL.map(to => ({
        id: `${from}/${to}`,
        endpoints: [
          { provider: 'breaks', format: from, pricing: PRICING },
          to === 'bedrock-converse'
            ? { provider: 'aws', pricing: PRICING }
            : { provider: 'parrot', format: to, upstreamModel: 'parrot', pricing: PRICING },
        ],
      })),
    ),
    ...more,
  } as never)
  t.teardown(async () => {
    await world.close()
    await Promise.all([breaking.close(), parrot.close(), converse.close()])
  })
  return {
    ...world,
    breaking,
    parrot,
    script,
    async ask(
      model: string,
      fields: Loose = {},
      headers: Record<string, string> = { 'x-gateway-metadata': 'enabled' },
    ) {
      const reply = await world.gateway.respond(
        { model, input: QUESTION, stream: true, ...fields },
        { headers },
      )
      const text = await reply.text()
      const nothing: Loose = {}
      if (reply.status !== 200)
        return {
          status: reply.status,
          events: [],
          last: { type: 'refused', response: nothing },
          said: '',
          deltas: '',
        }
      const events = parseEventStream(text)
      const last = events.at(-1) as unknown as { type: string; response: Loose }
      return {
        status: reply.status,
        events,
        last,
        said: saidIn(last?.response ?? {}),
        deltas: deltasIn(events),
      }
    },
  }
}

interface Recorded {
  readonly name: string
  readonly format: AnyFormat
  readonly bytes: Buffer
}

/** The providers that were called, in order. */
function providersOf(response: Loose): string {
  const { attempts } = response['gateway_metadata'] as { attempts: readonly { provider: string }[] }
  return attempts.map(({ provider }) => provider).join()
}

/** Cuts each recorded text at some bytes, and continues it at every format. */
async function cutEach(
  world: Awaited<ReturnType<typeof startWorldOf>>,
  all: readonly Recorded[],
  cuts: number,
) {
  const { breaking, script, ask } = world
  const seen = { texts: 0, continued: 0, late: 0, cases: 0 }
  const draw = new Draw(7)
  for (const { name, format, bytes } of all) {
    breaking.type = format === 'bedrock-converse' ? 'application/vnd.amazon.eventstream' : 'text/event-stream'
    Object.assign(breaking, { bytes, cutAt: Number.POSITIVE_INFINITY })
    const uncut = await ask(`${format}/openai-chat`)
    const output = (uncut.last.response['output'] ?? []) as readonly Loose[]
    const isText =
      uncut.last.type === 'response.completed' &&
      providersOf(uncut.last.response) === 'breaks' &&
      uncut.said.length >= 5 &&
      uncut.deltas === uncut.said &&
      output.every(({ type, content }) => type === 'message' && (content as unknown[]).length === 1) &&
      output.length === 1
    if (!isText) continue
    seen.texts++
    script.whole = uncut.said
    for (let n = 0; n < cuts; n++) {
      const to = ALL[seen.cases++ % ALL.length]
      script.repeats = draw.of([0, 0, 12, 40, 150])
      script.pieceMax = draw.of([1, 5, 1_000])
      breaking.cutAt = draw.below(bytes.length)
      const { last, said, deltas, events } = await ask(`${format}/${to}`)
      const where = `${name} to ${to}, cut at ${breaking.cutAt}, ${script.repeats} again`
      // No text alone was open: its provider drew or thought, or broke before it said that it had finished.
      const others = events.flatMap(event =>
        event.type === 'response.output_item.added' ? [event.item.type] : [],
      )
      const isMore = others.some(type => type !== 'message' && (type !== 'reasoning' || deltas === ''))
      const isLate = last.type === 'response.failed' && (isMore || deltas === script.whole)
      if (isLate) {
        seen.late++
        continue
      }
      assert.equal(last.type, 'response.completed', `${where}: ${JSON.stringify(last.response['error'])}`)
      assert.equal(said, script.whole, where)
      assert.equal(deltas, script.whole, where)
      const told = events.filter(({ type }) => type === 'response.gateway.continued')
      assert.deepEqual(grammarViolations(events), [], where)
      seen.continued += told.length
      const door = CLIENTS[n % CLIENTS.length] as DialectClient
      const asked = { model: `${format}/${to}`, ...door.conversation(QUESTION), stream: true }
      const answer = await door.complete(world.gateway, asked)
      assert.equal(door.textOf(answer), script.whole, `${where}, by ${door.name}`)
    }
  }
  return seen
}

t.test('our own recorded texts are whole after a cut at any byte', async t => {
  const world = await startWorldOf(t)
  const all = ALL.flatMap(format =>
    goldens(format)
      // A failure would make its endpoint rest.
      .filter(({ streamed, expected }) => streamed && !/"(?:error|failure)"/.test(JSON.stringify(expected)))
      .map(({ name, bytes }) => ({ name: `${format}/${name}`, format, bytes })),
  )
  const { texts, continued, late, cases } = await cutEach(world, all, 20)
  t.comment(`${texts} texts, ${cases} cases, ${continued} continued, ${late} without an open text`)
  t.ok(texts >= 5 && continued >= 20)
})

t.test(
  'recorded texts of providers are whole after a cut at any byte',
  { skip: withoutRecordings },
  async t => {
    const world = await startWorldOf(t)
    const all = ALL.flatMap(format =>
      recordings(format)
        .filter(({ streamed, httpStatus }) => streamed && (httpStatus ?? 200) === 200)
        .map(({ name, bytes }) => ({ name, format, bytes: bytes() })),
    )
    const some = process.env['EXHAUSTIVE'] === '1' ? all : all.filter((_, at) => at % 6 === 0)
    const { texts, continued, late, cases } = await cutEach(world, some, 20)
    t.comment(`${texts} texts, ${cases} cases, ${continued} continued, ${late} without an open text`)
    t.ok(texts >= 5 && continued >= 20)
  },
)

const WHOLE = 'The quick brown fox jumps over the lazy dog, and then it rests for a while.'
/** A stream of chat completions with this text, in pieces. */
const chatStream = (...pieces: readonly string[]) => {
  const chunk = (choice: object, more: object = {}) =>
    `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: 'm', choices: [{ index: 0, finish_reason: null, ...choice }], ...more })}\n\n`
  return [
    ...pieces.map(content => chunk({ delta: { content } })),
    `${chunk({ delta: {}, finish_reason: 'stop' }, { usage: { prompt_tokens: 5, completion_tokens: 20, total_tokens: 25 } })}data: [DONE]\n\n`,
  ]
}

/** Breaks after these pieces. */
function breakAfter(
  { breaking }: Pick<Awaited<ReturnType<typeof startWorldOf>>, 'breaking'>,
  ...said: string[]
) {
  const pieces = chatStream(...said, 'never seen')
  breaking.type = 'text/event-stream'
  breaking.bytes = Buffer.from(pieces.join(''))
  breaking.cutAt = Buffer.byteLength(pieces.slice(0, said.length).join(''))
}

t.test('metadata, events, metrics and the bill tell of both parts', async t => {
  const world = await startWorldOf(t)
  const { gateway, script, ask, records } = world
  script.whole = WHOLE
  breakAfter(world, 'The quick ', 'brown fox ')
  const { last, said, events } = await ask('openai-chat/anthropic-messages')
  t.equal(said, WHOLE)
  const metadata = last.response['gateway_metadata'] as { attempts: Loose[] }
  t.match(metadata.attempts, [
    { provider: 'breaks', reason: String, usage: { output_tokens: Number } },
    { provider: 'parrot', continued_at: 20, usage: { output_tokens: Number } },
  ])
  const told = events.filter(({ type }) => type === 'response.gateway.continued')
  t.match(told, [{ model: 'openai-chat/anthropic-messages', provider: 'parrot', continued_at: 20 }])
  const usage = last.response['usage'] as { output_tokens: number; cost: number }
  const parts = metadata.attempts.map(({ usage }) => (usage as { output_tokens: number }).output_tokens)
  t.equal(
    usage.output_tokens,
    parts.reduce((sum, each) => sum + each, 0),
  )
  const [record] = await records()
  t.match(record, { outcome: 'completed', outputTokens: usage.output_tokens })
  t.ok((record?.cost ?? 0) > 0)
  t.match(await metricsOf(gateway), /gateway_stream_continuations_total\{outcome="continued"\} 1\n/)
  const silent = await ask('openai-chat/anthropic-messages', {}, {})
  t.equal(silent.said, WHOLE)
  t.notOk(silent.events.some(({ type }) => type === 'response.gateway.continued'))
})

async function metricsOf({
  serving,
}: {
  serving: { metrics: { registry: { metrics(): Promise<string> } } }
}) {
  return await serving.metrics.registry.metrics()
}

t.test('one that fails in the end costs nothing', async t => {
  const world = await startWorldOf(t)
  const { script, ask, records, parrot } = world
  script.whole = WHOLE
  breakAfter(world, 'The quick ')
  parrot.hangs = false
  parrot.answerTo = () => ({ status: 503, message: 'not now' })
  const { last } = await ask('openai-chat/anthropic-messages')
  t.equal(last.type, 'response.failed')
  const [record] = await records()
  t.match(record, { cost: 0, outcome: 'failed' })
})

t.test('it is off by default, and a request, a row and the setting turn it on', async t => {
  for (const [setting, wish, type] of [
    [false, undefined, 'response.failed'],
    [false, true, 'response.completed'],
    [true, false, 'response.failed'],
    [true, undefined, 'response.completed'],
  ] as const) {
    const world = await startWorldOf(t, { continueStreams: setting })
    world.script.whole = WHOLE
    breakAfter(world, 'The quick ')
    const provider = wish === undefined ? {} : { provider: { continue_streams: wish } }
    const { last } = await world.ask('openai-chat/openai-chat', provider)
    t.equal(last.type, type, `${setting} ${wish}`)
  }
})

t.test('what cannot honestly go on fails as before', async t => {
  const world = await startWorldOf(t)
  world.script.whole = WHOLE
  breakAfter(world, '{"a":')
  const format = {
    type: 'json_schema',
    name: 'x',
    strict: true,
    schema: { type: 'object', properties: {}, additionalProperties: false },
  }
  const strict = await world.ask('openai-chat/openai-chat', { text: { format } })
  t.equal(strict.last.type, 'response.failed')
  const call = (args: string) =>
    `data: ${JSON.stringify({ id: 'c', choices: [{ index: 0, delta: { tool_calls: [{ index: 0, id: 'x', function: { name: 'f', arguments: args } }] }, finish_reason: null }] })}\n\n`
  const bytes = call('{"a":') + call('1}')
  world.breaking.bytes = Buffer.from(bytes)
  world.breaking.cutAt = call('{"a":').length
  const tools = [{ type: 'function', name: 'f', parameters: { type: 'object' } }]
  const open = await world.ask('openai-chat/openai-chat', { tools })
  t.equal(open.last.type, 'response.failed')
  t.match(await metricsOf(world.gateway), /gateway_stream_continuations_total\{outcome="impossible"\} 2\n/)
})
