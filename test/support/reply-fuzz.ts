/**
 * Replies of providers with something wrong at any place: nulls, wrong types, sizes and orders, in all formats, through
 * all doors. Whatever a provider sends, a client gets an answer or a documented failure, and other streams go on.
 */
import { createServer, type ServerResponse } from 'node:http'
import type { Test } from 'tap'
import { parseEventStream, startGateway } from './gateway.ts'
import { bytesOf, type Habit, habits } from './habits.ts'
import { closing, listening } from './listening.ts'

type Draw = (below: number) => number

/** A generator that gives the same numbers for the same seed. */
export function drawing(seed: number): Draw {
  let state = seed
  return below => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

const LONG = 'x'.repeat(70_000)
const DEEP: unknown = JSON.parse('['.repeat(3_000) + ']'.repeat(3_000))
const WRONG: readonly unknown[] = [
  ...[null, true, 0, -1, 1.5, 1e300, '', 'x', '\ud800', '\u0000', '__proto__', [], {}, [null], [[]], [{}]],
  ...[{ x: null }, { type: 'x' }, { text: 7 }, [7, 'x', null], LONG, DEEP],
  Array.from({ length: 5_000 }, () => null),
]

/** The reply with one to three things wrong. */
function spoilt({ frames }: Habit, draw: Draw): readonly unknown[] {
  let left = structuredClone(frames) as unknown[]
  for (let times = 1 + draw(3); times > 0; times--) {
    const at = draw(left.length)
    switch (left.length > 1 ? draw(8) : 7) {
      case 0:
        left.splice(at, 1)
        break
      case 1:
        left.splice(draw(left.length), 0, left[at])
        break
      case 2:
        left = left.toSpliced(at, 1).toSpliced(draw(left.length), 0, left[at])
        break
      default:
        left[at] = replaced(left[at], draw)
    }
  }
  return left
}

/** The value with a wrong one at some place of it. */
function replaced(value: unknown, draw: Draw): unknown {
  const keys = typeof value === 'object' && value !== null ? Object.keys(value) : []
  if (keys.length === 0 || draw(6) === 0) return WRONG[draw(WRONG.length)]
  const key = keys[draw(keys.length)] as string
  const copy = (Array.isArray(value) ? [...value] : { ...(value as object) }) as Record<string, unknown>
  if (draw(12) === 0) delete copy[key]
  else copy[key] = replaced(copy[key], draw)
  return copy
}

const DOORS: readonly ((model: string, stream: boolean) => readonly [path: string, body: object])[] = [
  (model, stream) => ['/v1/chat/completions', { model, stream, messages: [{ role: 'user', content: 'hi' }] }],
  (model, stream) => ['/v1/responses', { model, stream, input: 'hi' }],
  (model, stream) => [
    '/v1/messages',
    { model, stream, max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] },
  ],
  (model, stream) => [
    `/v1beta/models/${model}:${stream ? 'streamGenerateContent?alt=sse' : 'generateContent'}`,
    { contents: [{ role: 'user', parts: [{ text: 'hi' }] }] },
  ],
]

/** Words of a failure of our own, which no reply may cause. */
const OURS = /Internal Server Error|"INTERNAL"|"type":"server"|"error_type":"server"/

/** Asks for `requests` spoilt replies, one after the other, beside a stream that must not notice. */
export async function fuzzReplies(t: Test, seed: number, requests: number): Promise<void> {
  const draw = drawing(seed)
  const all = habits()
  let bytes: Buffer = Buffer.alloc(0)
  let beside: ServerResponse | null = null
  const server = createServer((request, response) => {
    let body = ''
    request.setEncoding('utf8').on('data', (piece: string) => {
      body += piece
    })
    request.on('end', () => {
      const asked = `${request.url} ${body}`
      const isStream = asked.includes('"stream":true') || asked.includes('stream')
      response.writeHead(200, { 'content-type': isStream ? 'text/event-stream' : 'application/json' })
      if (asked.includes('"beside"')) beside = response.on('close', () => undefined)
      else response.end(bytes)
      if (beside === response) response.write(besideChunk('begun '))
    })
  })
  const { url } = await listening(server)
  const formats = [...new Set(all.map(({ format }) => format))]
  const gateway = await startGateway({
    providers: formats.map(slug => ({ slug, name: slug, format: slug, baseUrl: url, apiKey: 'none' })),
    models: [
      { id: 'fuzz/beside', endpoints: [{ provider: 'openai-chat', upstreamModel: 'beside' }] },
      // One for each request: a provider that fails often is not asked.
      ...Array.from({ length: requests }, (_, at) => ({
        id: `fuzz/m${at}`,
        endpoints: [{ provider: (all[at % all.length] as Habit).format, upstreamModel: `m${at}` }],
      })),
    ] as never,
  })
  t.teardown(async () => {
    server.closeAllConnections()
    await gateway.close()
    await closing(server)
  })
  const other = await gateway.respond({ model: 'fuzz/beside', input: 'hi', stream: true })
  for (let at = 0; at < requests; at++) {
    const habit = all[at % all.length] as Habit
    const frames = spoilt(habit, draw)
    bytes = bytesOf(habit.format, habit.isStream, frames)
    const [path, body] = (DOORS[draw(DOORS.length)] as (typeof DOORS)[number])(`fuzz/m${at}`, habit.isStream)
    const reply = await fetch(`http://127.0.0.1:${gateway.port}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    const text = await reply.text()
    if (reply.status === 500 || OURS.test(text)) {
      t.fail(`${habit.name} at ${path}: ${text.slice(0, 300)}\n${JSON.stringify(frames).slice(0, 2_000)}`)
    }
  }
  const thread = beside as ServerResponse | null
  thread?.write(besideChunk('and ended', 'stop'))
  thread?.end('data: [DONE]\n\n')
  const events = parseEventStream(await other.text())
  t.equal(events.at(-1)?.type, 'response.completed', 'the stream beside them')
  t.match(JSON.stringify(events.at(-1)), 'begun and ended')
  // A failed request is told in the line of its exchange.
  const faults = gateway.lines.filter(({ level, msg }) => level === 'error' && msg !== 'exchange')
  t.same(faults, [], 'nothing that our code did not expect')
}

function besideChunk(content: string, finish: string | null = null): string {
  const choices = [{ index: 0, delta: { content }, finish_reason: finish }]
  return `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: 'm', choices })}\n\n`
}
