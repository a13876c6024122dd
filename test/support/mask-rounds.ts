/**
 * Rounds of masked requests: generated texts with findings go through every door to a provider of every format, which
 * repeats what it read as text and as arguments of a call, cut anywhere. What the client gets must be what it wrote.
 */
import assert from 'node:assert/strict'
import type { Test } from 'tap'
import { hashKey } from '../../src/callers/api-key.ts'
import type { GuardrailRules } from '../../src/protocol/management/guardrails.ts'
import { awsMessage } from './aws-events.ts'
import { CLIENTS, contentOf, type Loose, messageOf } from './dialect-clients.ts'
import type { TestGateway, TestGatewayOptions } from './gateway.ts'
import { giveGuardrail } from './guardrail.ts'
import { Parrot, Provider, parrotRows, pieces } from './provider.ts'
import { startWorld } from './world.ts'

/** What is masked. The last one has characters that JSON escapes. */
const FOUND: readonly ((draw: Draw) => string)[] = [
  draw => `${draw.word()}.${draw.word()}@${draw.word()}.example`,
  draw => `+1 415 555 ${draw.digits(4)}`,
  draw => `4111 1111 1111 1111`.slice(0, 19) + (draw.below(2) === 0 ? '' : ''),
  draw => `10.${draw.below(250)}.${draw.below(250)}.${draw.below(250)}`,
  draw => `ACME-${draw.digits(6)}`,
  draw => `<<${draw.word()}"\\${draw.below(2) === 0 ? 'é😀' : '\t/'}${draw.word()}>>`,
]
/** What is not, and looks as if it were a placeholder or the beginning of one. */
const FILLER = [
  'and',
  '[',
  '[[',
  '[EMAIL',
  '[EMAIL_',
  '[PHONE_77]',
  '[NOT_1]',
  '[EMAIL_1x]',
  'naïve 😀',
  '\n',
  ', ',
] as const

export const MASK_RULES: Partial<GuardrailRules> = {
  contentFilterBuiltins: (['email', 'phone', 'credit-card', 'ip-address'] as const).map(slug => ({
    slug,
    action: 'mask',
    scanScope: 'all_messages',
  })),
  contentFilters: [
    { pattern: '\\bACME-[0-9]{6}\\b', action: 'mask', label: 'CASE' },
    { pattern: '<<[^>]+>>', action: 'mask', label: 'a name for people' },
  ],
}

/** Numbers from a seed. */
export class Draw {
  #state: number

  constructor(seed: number) {
    this.#state = seed >>> 0
  }

  /** From 0 to before `max`. */
  below(max: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) % max
  }

  of<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T
  }

  digits(count: number): string {
    return Array.from({ length: count }, () => this.below(10)).join('')
  }

  word(): string {
    return Array.from({ length: 3 + this.below(6) }, () => 'abcdefghiklmnoprstuvwz'[this.below(22)]).join('')
  }
}

interface Written {
  readonly text: string
  /** What must be seen nowhere but at the client. */
  readonly secrets: readonly string[]
}

function written(draw: Draw): Written {
  const secrets: string[] = []
  const words = ['Say']
  for (let count = 1 + draw.below(30); count > 0; count--) {
    const again = secrets.length > 0 && draw.below(4) === 0
    const found = again ? draw.of(secrets) : draw.of(FOUND)(draw)
    secrets.push(found)
    words.push(...Array.from({ length: draw.below(3) }, () => draw.of(FILLER)), found)
  }
  words.push(draw.of(FILLER), 'end.')
  return { text: words.join(' '), secrets: [...new Set(secrets)] }
}

/** Cuts between any two characters of JavaScript but those of a pair; `most` 1: at every border. */
function cut(text: string, draw: Draw, most: number): string[] {
  const characters = Array.from(text)
  const list: string[] = []
  for (let at = 0; at < characters.length; ) {
    const size = 1 + draw.below(most)
    list.push(characters.slice(at, at + size).join(''))
    at += size
  }
  return list
}

/** The text of the user in a body of any format. */
function readIn(value: unknown): string | null {
  if (typeof value === 'string') return value.startsWith('Say ') ? value : null
  if (typeof value !== 'object' || value === null) return null
  for (const inner of Object.values(value)) {
    const found = readIn(inner)
    if (found !== null) return found
  }
  return null
}

/** A parrot that repeats what it read. */
class Repeater extends Parrot {
  draw = new Draw(0)
  pieceMax = 1
  thinks = false

  constructor() {
    super()
    Object.defineProperty(this, 'parts', { get: () => this.#parts() })
  }

  #parts() {
    const read = readIn(JSON.parse(this.bodies.at(-1) ?? '')) ?? 'nothing'
    const sizes = (text: string) => pieces(...cut(text, this.draw, this.pieceMax))
    return [
      ...(this.thinks ? [{ kind: 'reasoning', form: 'text', pieces: sizes(`I read: ${read}`) }] : []),
      { kind: 'text', pieces: sizes(read) },
      {
        kind: 'call',
        name: 'send',
        custom: false,
        pieces: sizes(JSON.stringify({ to: read, n: [1, { x: read }] })),
      },
    ]
  }
}

/** A provider with the Converse API that repeats what it read. */
class ConverseRepeater extends Provider {
  readonly bodies: string[] = []
  draw = new Draw(0)
  pieceMax = 1

  constructor() {
    super(({ path, text, body }) => {
      this.bodies.push(text)
      const read = readIn(body) ?? 'nothing'
      const input = { to: read, n: [1, { x: read }] }
      const usage = { inputTokens: 3, outputTokens: 5, totalTokens: 8 }
      if (!path.endsWith('/converse-stream')) {
        const content = [{ text: read }, { toolUse: { toolUseId: 'tooluse_1', name: 'send', input } }]
        return {
          json: { output: { message: { role: 'assistant', content } }, stopReason: 'tool_use', usage },
        }
      }
      const event = (type: string, data: object) => awsMessage(type, JSON.stringify(data))
      const delta = (index: number, delta: object) =>
        event('contentBlockDelta', { contentBlockIndex: index, delta })
      const bytes = Buffer.concat([
        event('messageStart', { role: 'assistant' }),
        ...cut(read, this.draw, this.pieceMax).map(piece => delta(0, { text: piece })),
        event('contentBlockStop', { contentBlockIndex: 0 }),
        event('contentBlockStart', {
          contentBlockIndex: 1,
          start: { toolUse: { toolUseId: 'tooluse_1', name: 'send' } },
        }),
        ...cut(JSON.stringify(input), this.draw, this.pieceMax).map(piece =>
          delta(1, { toolUse: { input: piece } }),
        ),
        event('contentBlockStop', { contentBlockIndex: 1 }),
        event('messageStop', { stopReason: 'tool_use' }),
        event('metadata', { usage, metrics: { latencyMs: 1 } }),
      ])
      return response => {
        response.writeHead(200, { 'content-type': 'application/vnd.amazon.eventstream' })
        response.end(bytes)
      }
    })
  }
}

interface Answered {
  readonly text: string
  readonly thought: string
  /** The value of the arguments. */
  readonly input: unknown
}

interface Door {
  readonly name: string
  ask(to: TestGateway, model: string, text: string, isStreamed: boolean, more: Loose): Promise<Answered>
}

const PARAMETERS = { type: 'object', properties: { to: { type: 'string' } } }
const TOOLS: Readonly<Record<string, unknown>> = {
  responses: [{ type: 'function', name: 'send', parameters: PARAMETERS }],
  'chat-completions': [{ type: 'function', function: { name: 'send', parameters: PARAMETERS } }],
  messages: [{ name: 'send', input_schema: PARAMETERS }],
  gemini: [{ functionDeclarations: [{ name: 'send', parameters: PARAMETERS }] }],
}

const responses: Door = {
  name: 'responses',
  async ask(to, model, text, isStreamed, more) {
    const reply = await to.respond({
      model,
      input: text,
      tools: TOOLS['responses'],
      stream: isStreamed,
      ...more,
    })
    const body = await reply.text()
    assert.equal(reply.status, 200, body)
    const events = isStreamed ? eventsIn(body) : []
    const response = isStreamed ? events.at(-1)?.['response'] : JSON.parse(body)
    const said = inItems((response as Loose)['output'] as readonly Loose[])
    if (!isStreamed) return said
    const deltas = (type: string): string =>
      events.map(event => (event['type'] === `response.${type}.delta` ? event['delta'] : '')).join('')
    // What came piece by piece is what the last event repeats.
    assert.equal(deltas('output_text'), said.text)
    assert.equal(deltas('reasoning_text'), said.thought)
    assert.deepEqual(JSON.parse(deltas('function_call_arguments')), said.input)
    return said
  },
}

export function eventsIn(stream: string): Loose[] {
  return stream
    .split('\n')
    .filter(line => line.startsWith('data: {'))
    .map(line => JSON.parse(line.slice('data: '.length)) as Loose)
}

function inItems(output: readonly Loose[]): Answered {
  const said = { text: '', thought: '', input: null as unknown }
  for (const item of output) {
    const content = (item['content'] ?? []) as readonly { readonly text?: string }[]
    const text = content.map(part => part.text ?? '').join('')
    if (item['type'] === 'message') said.text += text
    if (item['type'] === 'reasoning') said.thought += text
    if (item['type'] === 'function_call') said.input = JSON.parse(item['arguments'] as string)
  }
  return said
}

const READERS: Readonly<Record<string, (answer: Loose) => Answered>> = {
  'chat-completions'(answer) {
    const {
      content,
      reasoning,
      tool_calls: calls,
    } = messageOf(answer) as {
      content: string
      reasoning?: string
      tool_calls: readonly { readonly function: { readonly arguments: string } }[]
    }
    return { text: content, thought: reasoning ?? '', input: JSON.parse(calls[0]?.function.arguments ?? '') }
  },
  messages(answer) {
    const all = contentOf(answer) as { type: string; text?: string; thinking?: string; input?: unknown }[]
    return {
      text: all.map(({ text }) => text ?? '').join(''),
      thought: all.map(({ thinking }) => thinking ?? '').join(''),
      input: all.find(({ type }) => type === 'tool_use')?.input,
    }
  },
  gemini(answer) {
    const [candidate] = answer['candidates'] as { content: { parts: Loose[] } }[]
    const parts = candidate?.content.parts ?? []
    const of = (isThought: boolean) =>
      parts
        .filter(part => (part['thought'] === true) === isThought)
        .map(part => part['text'] ?? '')
        .join('')
    const call = parts.find(part => 'functionCall' in part)?.['functionCall'] as Loose | undefined
    return { text: of(false), thought: of(true), input: call?.['args'] }
  },
}

const DOORS: readonly Door[] = [
  responses,
  ...CLIENTS.map(
    (client): Door => ({
      name: client.name,
      async ask(to, model, text, isStreamed, more) {
        const body = {
          model,
          ...client.conversation(text),
          tools: TOOLS[client.name],
          ...(isStreamed ? { stream: true } : {}),
          ...more,
        }
        const answer = await client.complete(to, body)
        return (READERS[client.name] as (answer: Loose) => Answered)(answer)
      },
    }),
  ),
]

/** The formats of the parrot that have a place for raw thoughts. */
const THINKING = new Set(['openai-responses', 'openai-chat', 'anthropic-messages', 'google-gemini'])

/** A gateway whose key masks, and providers that repeat what they read. */
export async function startMaskWorld(
  t: Pick<Test, 'teardown'>,
  options: TestGatewayOptions = {},
  more: Partial<GuardrailRules> = {},
) {
  const parrot = new Repeater()
  const converse = new ConverseRepeater()
  const rows = parrotRows(await parrot.listen())
  const baseUrl = await converse.listen()
  const world = await startWorld({
    ...options,
    providers: [
      ...rows.providers,
      { slug: 'aws', format: 'bedrock-converse', baseUrl, apiKey: 'k' },
      ...(options.providers ?? []),
    ] as typeof rows.providers,
    models: [
      ...rows.models,
      { id: 'aws/bedrock-converse', endpoints: [{ provider: 'aws' }] },
      ...(options.models ?? []),
    ] as typeof rows.models,
  })
  t.teardown(async () => {
    await world.close()
    await Promise.all([parrot.close(), converse.close()])
  })
  const { gateway, store } = world
  const rules = await giveGuardrail(store, hashKey(gateway.apiKey), { ...MASK_RULES, ...more })
  gateway.serving.invalidate({ kind: 'guardrails', organizationId: rules.organizationId })
  const models = [...rows.models.map(({ id }) => id), 'aws/bedrock-converse']
  return { ...world, repeater: parrot, converse, models }
}

export type MaskWorld = Awaited<ReturnType<typeof startMaskWorld>>

/** Runs the rounds from a seed. @throws AssertionError for the first one that went wrong */
export async function runMaskRounds(world: MaskWorld, count: number, seed: number): Promise<void> {
  const { gateway, repeater, converse, models } = world
  for (let round = 0; round < count; round++) {
    const draw = new Draw(seed + round)
    const { text, secrets } = written(draw)
    const door = DOORS[round % DOORS.length] as Door
    const model = models[Math.floor(round / DOORS.length) % models.length] as string
    const isStreamed = Math.floor(round / (DOORS.length * models.length)) % 2 === 0
    const most = draw.of([1, 1, 2, 7, 1_000])
    Object.assign(repeater, {
      draw,
      pieceMax: most,
      thinks: THINKING.has(model.slice('parrot/'.length)) && draw.below(2) === 0,
    })
    Object.assign(converse, { draw, pieceMax: most })
    const more = draw.below(3) === 0 && door.name === 'responses' ? { session_id: `s${draw.below(5)}` } : {}
    const where = `round ${round} of seed ${seed}: ${door.name}, ${model}, ${isStreamed ? 'streamed' : 'whole'}`
    repeater.bodies.length = converse.bodies.length = 0
    const said = await door.ask(gateway, model, text, isStreamed, more)
    assert.equal(said.text, text, where)
    assert.deepEqual(said.input, { to: text, n: [1, { x: text }] }, where)
    if (said.thought !== '') assert.equal(said.thought, `I read: ${text}`, where)
    const sent = [...repeater.bodies, ...converse.bodies].join('\n')
    assert.ok(sent.length > 0, where)
    for (const secret of secrets) {
      assert.ok(!sent.includes(secret) && !sent.includes(JSON.stringify(secret).slice(1, -1)), where)
    }
  }
}

/** Everything that a gateway has logged. */
export function logged({ lines }: Pick<TestGateway, 'lines'>): string {
  return JSON.stringify(lines)
}
