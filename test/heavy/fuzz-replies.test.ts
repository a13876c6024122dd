/**
 * Recorded replies of providers, damaged at random: every caller of every dialect gets a proper end, nothing of the
 * provider's headers, and no negative cost. The seed is fixed, so that what fails once fails again.
 */
import { createServer } from 'node:http'
import t from 'tap'
import { startGateway, type TestGateway } from '../support/gateway.ts'
import { NO_SHEDDING } from '../support/gateway-process.ts'
import { type Golden, goldens } from '../support/goldens.ts'
import { listening } from '../support/listening.ts'
import { cutOff, flippedBits, mutatedJson, numbersFrom, type Pick } from './fuzz.ts'

const SEED = Number(process.env['FUZZ_SEED'] ?? 7)
const ROUNDS = Number(process.env['FUZZ_ROUNDS'] ?? 4_000)
const PARALLEL = 8
/** Replies are short: one that takes longer hangs. */
const HANGS_MS = 60_000
const FORMATS = ['openai-responses', 'openai-chat', 'anthropic-messages', 'google-gemini'] as const
const CANARY = 'canary-of-the-provider'
const STATUSES = [
  200, 201, 202, 204, 206, 301, 302, 304, 307, 400, 401, 403, 404, 408, 418, 429, 500, 503, 529, 599,
]

interface Reply {
  readonly status: number
  readonly type: string
  readonly bytes: Buffer
}

/** The frames of a stream with a few of them changed, left out, repeated or exchanged. */
function mutatedStream(text: string, pick: Pick): string {
  const frames = text.split('\n\n')
  for (let left = 1 + pick(2); left > 0; left--) {
    const at = pick(frames.length)
    const other = pick(frames.length)
    const frame = frames[at] ?? ''
    const [before, data = ''] = frame.split(/(?<=data: ?)/)
    if (pick(4) === 0) frames.splice(at, pick(2), frames[other] ?? '')
    else if (data.startsWith('{')) {
      try {
        frames[at] = `${before}${JSON.stringify(mutatedJson(JSON.parse(data), pick))}`
      } catch {
        frames[at] = frames[other] ?? ''
      }
    }
  }
  return frames.join('\n\n')
}

function damaged({ bytes, streamed }: Golden, pick: Pick): Reply {
  const type = streamed === pick(20) > 0 ? 'text/event-stream' : 'application/json'
  const good = { status: 200, type, bytes }
  switch (pick(8)) {
    case 0:
      return { ...good, bytes: cutOff(bytes, pick) }
    case 1:
      return { ...good, bytes: flippedBits(bytes, pick) }
    case 2:
      return { ...good, status: STATUSES[pick(STATUSES.length)] ?? 200 }
    default: {
      const text = bytes.toString('utf8')
      if (streamed) return { ...good, bytes: Buffer.from(mutatedStream(text, pick)) }
      try {
        return { ...good, bytes: Buffer.from(JSON.stringify(mutatedJson(JSON.parse(text), pick))) }
      } catch {
        return { ...good, bytes: flippedBits(bytes, pick) }
      }
    }
  }
}

/** A request of each dialect. */
const DIALECTS: readonly ((model: string, stream: boolean) => readonly [path: string, body: object])[] = [
  (model, stream) => ['/responses', { model, input: 'hi', stream }],
  (model, stream) => ['/chat/completions', { model, messages: [{ role: 'user', content: 'hi' }], stream }],
  (model, stream) => [
    '/messages',
    { model, max_tokens: 100, messages: [{ role: 'user', content: 'hi' }], stream },
  ],
  (model, stream) => [
    `/../v1beta/models/${encodeURIComponent(model)}:${stream ? 'streamGenerateContent?alt=sse' : 'generateContent'}`,
    { contents: [{ role: 'user', parts: [{ text: 'hi' }] }] },
  ],
]

/** The fault of an answer; null: none. */
function faultOf(status: number, headers: Headers, text: string): string | null {
  if (status === 500) return 'status 500'
  if (/"(?:error_type|type|code)":\s*"internal"/.test(text)) return 'an internal error'
  if (/"cost"\s*:\s*-/.test(text)) return 'a negative cost'
  for (const [name, value] of headers) {
    if (name === 'set-cookie' || value.includes(CANARY)) return `the provider's header ${name}`
  }
  return null
}

async function ask(gateway: TestGateway, path: string, body: object): Promise<string | null> {
  const reply = await fetch(new URL(`${gateway.url}${path}`), {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
    redirect: 'manual',
    signal: AbortSignal.timeout(HANGS_MS),
  })
  return faultOf(reply.status, reply.headers, await reply.text())
}

t.setTimeout(1_200_000)
t.test('damaged replies of providers', async t => {
  /** By the name in the path, while it is needed. */
  const replies = new Map<string, Reply>()
  const server = createServer((request, response) => {
    request.resume()
    request.on('end', () => {
      const name =
        request.headers['authorization'] ?? request.headers['x-api-key'] ?? request.headers['x-goog-api-key']
      const reply = replies.get(String(name).replace('Bearer ', ''))
      const { status, type, bytes } = reply ?? {
        status: 200,
        type: 'application/json',
        bytes: Buffer.alloc(0),
      }
      const headers = {
        'content-type': type,
        'set-cookie': `session=${CANARY}`,
        'x-canary': CANARY,
        location: `http://127.0.0.1:1/${CANARY}`,
        'retry-after': '0',
      }
      response.writeHead(status, headers).end(status === 204 || status === 304 ? undefined : bytes)
    })
  })
  const { url: baseUrl } = await listening(server, t)
  const places = Array.from({ length: PARALLEL }, (_, at) => at)
  const rows = places.flatMap(at => FORMATS.map(format => ({ at, format, slug: `fuzz-${at}-${format}` })))
  const gateway = await startGateway({
    limits: NO_SHEDDING,
    providers: rows.map(({ slug, format }) => ({ slug, format, baseUrl, apiKey: slug })) as never,
    models: rows.map(({ slug }) => ({
      id: `fuzz/${slug}`,
      pricing: { prompt: '0.000001', completion: '0.000002' },
      endpoints: [{ provider: slug, upstreamModel: 'm' }],
    })) as never,
  })
  t.teardown(() => gateway.close())
  const seeds = new Map(FORMATS.map(format => [format, goldens(format)]))
  const faults: string[] = []
  let round = 0
  const work = async (place: number): Promise<void> => {
    while (round < ROUNDS) {
      const nth = round++
      // One sequence for each round: what is damaged does not depend on which answer comes first.
      const pick = numbersFrom(SEED * 1_000_003 + nth * 7_919)
      for (let left = 3; left > 0; left--) pick(2)
      const format = FORMATS[pick(FORMATS.length)] ?? 'openai-chat'
      const recorded = seeds.get(format) ?? []
      const golden = recorded[pick(recorded.length)]
      const dialect = DIALECTS[pick(DIALECTS.length)]
      if (golden === undefined || dialect === undefined) continue
      const slug = `fuzz-${place}-${format}`
      const reply = damaged(golden, pick)
      replies.set(slug, reply)
      const [path, body] = dialect(`fuzz/${slug}`, golden.streamed)
      const lines = gateway.lines.length
      let fault = await ask(gateway, path, body).catch((thrown: Error) => `no end: ${thrown.message}`)
      fault ??= gateway.lines.slice(lines).some(line => Number(line['level']) >= 50)
        ? 'an error in the log'
        : null
      if (fault !== null)
        faults.push(
          `round ${nth}: ${format}/${golden.file} to ${path}: ${fault}\n${reply.bytes.toString('utf8').slice(0, 3_000)}`,
        )
    }
  }
  await Promise.all(places.map(work))
  for (const fault of faults.slice(0, 20)) t.comment(fault)
  t.same(
    faults.map(fault => fault.split('\n', 1)[0]),
    [],
  )
  t.equal(gateway.serving.server.openRequests, 0)
  t.comment(`${round} replies with seed ${SEED}`)
})
