/**
 * The requests of the OpenAPI document and of our examples, damaged at random, on every operation: none of them is an
 * internal error, ends a thread or hangs. The seed is fixed, so that what fails once fails again.
 */
import t from 'tap'
import { record } from '../../src/base/json.ts'
import { startGateway, type TestGateway } from '../support/gateway.ts'
import { NO_SHEDDING } from '../support/gateway-process.ts'
import { cutOff, flippedBits, mutatedJson, numbersFrom, type Pick } from './fuzz.ts'

const SEED = Number(process.env['FUZZ_SEED'] ?? 11)
const ROUNDS = Number(process.env['FUZZ_ROUNDS'] ?? 4_000)
const PARALLEL = 8
const HANGS_MS = 60_000
const MODEL = 'sim/echo'
/** Operations that would take away what the others need. */
const LEFT_OUT = /^delete |\/keys|\/workspaces|\/members/

interface Seed {
  readonly method: string
  readonly path: string
  readonly body: unknown
  readonly isManagement: boolean
}

const QUESTION = { role: 'user', content: 'hi' }
const FUNCTION = {
  name: 'f',
  description: 'd',
  parameters: { type: 'object', properties: { a: { type: 'string' } } },
}

/** Requests with more in them than the examples of the document. */
const OWN: readonly (readonly [path: string, body: object])[] = [
  [
    '/responses',
    { model: MODEL, input: [{ type: 'message', ...QUESTION }], stream: true, max_output_tokens: 20 },
  ],
  [
    '/responses',
    { model: MODEL, input: 'hi', tools: [{ type: 'function', ...FUNCTION }], tool_choice: 'auto' },
  ],
  [
    '/responses',
    {
      model: MODEL,
      input: [
        QUESTION,
        { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' },
        { type: 'function_call_output', call_id: 'c', output: 'x' },
        { type: 'reasoning', id: 'r', summary: [{ type: 'summary_text', text: 's' }] },
      ],
      reasoning: { effort: 'low' },
      text: { format: { type: 'json_schema', name: 's', schema: { type: 'object' } } },
      plugins: [{ id: 'web' }],
    },
  ],
  [
    '/responses',
    { model: MODEL, input: 'hi', provider: { order: ['sim'] }, models: [MODEL], metadata: { a: 'b' } },
  ],
  [
    '/chat/completions',
    { model: MODEL, messages: [{ role: 'system', content: 's' }, QUESTION], stream: true },
  ],
  [
    '/chat/completions',
    {
      model: MODEL,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'hi' },
            { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } },
          ],
        },
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }],
        },
        { role: 'tool', tool_call_id: 'c', content: 'x' },
      ],
      tools: [{ type: 'function', function: FUNCTION }],
      stop: ['x'],
      logit_bias: { 1: 1 },
      response_format: { type: 'json_object' },
    },
  ],
  [
    '/messages',
    {
      model: MODEL,
      max_tokens: 20,
      system: [{ type: 'text', text: 's', cache_control: { type: 'ephemeral' } }],
      messages: [
        QUESTION,
        { role: 'assistant', content: [{ type: 'tool_use', id: 't', name: 'f', input: {} }] },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't', content: 'x' }] },
      ],
      tools: [{ name: 'f', input_schema: { type: 'object' } }],
      thinking: { type: 'enabled', budget_tokens: 1_024 },
      stream: true,
    },
  ],
  [
    '/../v1beta/models/sim%2Fecho:generateContent',
    {
      contents: [
        { role: 'user', parts: [{ text: 'hi' }, { inlineData: { mimeType: 'image/png', data: 'AA==' } }] },
        { role: 'model', parts: [{ functionCall: { name: 'f', args: {} } }] },
        { role: 'user', parts: [{ functionResponse: { name: 'f', response: {} } }] },
      ],
      systemInstruction: { parts: [{ text: 's' }] },
      tools: [{ functionDeclarations: [FUNCTION] }],
      generationConfig: { maxOutputTokens: 20, temperature: 1, stopSequences: ['x'] },
    },
  ],
]

/** One request for each operation of the document, with its first example. */
async function documented(gateway: TestGateway): Promise<readonly Seed[]> {
  const document = record(await (await fetch(`${gateway.url}/openapi.json`)).json())
  const paths = Object.entries(record(document?.['paths']) ?? {})
  return paths.flatMap(([path, operations]) =>
    Object.entries(record(operations) ?? {}).flatMap(([method, operation]) => {
      const isOperation = ['get', 'post', 'put', 'patch', 'delete'].includes(method)
      if (!isOperation || LEFT_OUT.test(`${method} ${path}`)) return []
      const content = record(record(record(operation)?.['requestBody'])?.['content'])
      const media = record(content?.['application/json'])
      const examples = Object.values(record(media?.['examples']) ?? {}).map(each => record(each)?.['value'])
      const bodies = media?.['example'] === undefined ? examples : [media['example'], ...examples]
      const filled = path.replaceAll(/\{[^}]*\}/g, 'x')
      const security = JSON.stringify(record(operation)?.['security'] ?? '')
      const isManagement = /anagement/.test(security)
      return (bodies.length === 0 ? [null] : bodies).map(body => ({
        method: method.toUpperCase(),
        path: filled.startsWith('/v1') ? `/..${filled}` : filled,
        body: withModel(body),
        isManagement,
      }))
    }),
  )
}

/** The body for a model that the gateway has. */
function withModel(body: unknown): unknown {
  const fields = record(body)
  return fields === null || typeof fields['model'] !== 'string' ? body : { ...fields, model: MODEL }
}

function bytesOf(body: unknown, pick: Pick): Buffer {
  const good = Buffer.from(JSON.stringify(body))
  switch (pick(8)) {
    case 0:
      return cutOff(good, pick)
    case 1:
      return flippedBits(good, pick)
    default:
      return Buffer.from(JSON.stringify(mutatedJson(body, pick)))
  }
}

async function send(gateway: TestGateway, seed: Seed, body: Buffer | null): Promise<[number, string | null]> {
  const key = seed.isManagement ? gateway.managementKey : gateway.apiKey
  const reply = await fetch(new URL(`${gateway.url}${seed.path}`), {
    method: seed.method,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    ...(body === null || seed.method === 'GET' ? {} : { body: new Uint8Array(body) }),
    signal: AbortSignal.timeout(HANGS_MS),
  })
  const text = await reply.text()
  const isInternal = reply.status === 500 || /"(?:error_type|type|code)":\s*"internal"/.test(text)
  return [reply.status, isInternal ? `an internal error: ${text.slice(0, 300)}` : null]
}

t.setTimeout(1_200_000)
t.test('damaged requests', async t => {
  const gateway = await startGateway({ limits: NO_SHEDDING })
  t.teardown(() => gateway.close())
  const own = OWN.map(([path, body]) => ({ method: 'POST', path, body, isManagement: false }))
  const seeds: readonly Seed[] = [...(await documented(gateway)), ...own]
  // Half of the rounds go to requests for an answer.
  const faults: string[] = []
  const statuses = new Map<number, number>()
  let round = 0
  const work = async (): Promise<void> => {
    while (round < ROUNDS) {
      const nth = round++
      const pick = numbersFrom(SEED * 1_000_003 + nth * 7_919)
      for (let left = 3; left > 0; left--) pick(2)
      const among = pick(2) === 0 ? own : seeds
      const seed = among[pick(among.length)]
      if (seed === undefined) continue
      const body = seed.body === null ? null : bytesOf(seed.body, pick)
      const lines = gateway.lines.length
      const [status, told] = await send(gateway, seed, body).catch(
        (thrown: Error) => [0, `no end: ${thrown.message}`] as const,
      )
      const isLogged = gateway.lines.slice(lines).some(line => Number(line['level']) >= 50)
      const fault = told ?? (isLogged ? 'an error in the log' : null)
      statuses.set(status, (statuses.get(status) ?? 0) + 1)
      if (fault !== null)
        faults.push(
          `round ${nth}: ${seed.method} ${seed.path}: ${fault}\n${body?.toString('utf8').slice(0, 3_000)}`,
        )
    }
  }
  await Promise.all(Array.from({ length: PARALLEL }, work))
  for (const fault of faults.slice(0, 20)) t.comment(fault)
  t.same(
    faults.map(fault => fault.split('\n', 1)[0]),
    [],
  )
  t.ok((statuses.get(200) ?? 0) > ROUNDS / 50, 'some are still served')
  t.ok((statuses.get(401) ?? 0) < ROUNDS / 10, 'nearly all come with a key that counts')
  t.equal(gateway.serving.server.openRequests, 0)
  t.comment(
    `${round} requests of ${seeds.length} with seed ${SEED}: ${JSON.stringify(Object.fromEntries(statuses))}`,
  )
})
