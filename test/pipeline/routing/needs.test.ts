import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { inputTokensOf, isInputBelow, leastInputTokensOf } from '../../../src/pipeline/accounting/estimate.ts'
import { createCatalog } from '../../../src/providers/catalog.ts'
import { NO_CREDENTIALS } from '../../../src/providers/credentials/catalog.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { type RouteScope, route } from '../../support/ranking.ts'

const provider = (slug: string) => ({
  slug,
  format: 'openai-chat' as const,
  baseUrl: 'http://127.0.0.1:1',
  apiKey: 'k',
})
const both = [{ provider: 'a', contextLength: 1_000, maxOutputTokens: 100 }, { provider: 'b' }]

const catalog = createCatalog({
  providers: [provider('a'), provider('b')],
  models: [
    { id: 'm/silent', endpoints: [{ provider: 'a' }] },
    { id: 'm/text', inputModalities: ['text'], endpoints: [{ provider: 'a' }] },
    { id: 'm/sees', inputModalities: ['text', 'image'], endpoints: [{ provider: 'b' }] },
    { id: 'm/both', endpoints: both },
    {
      id: 'm/tight',
      contextLength: 4_000,
      maxOutputTokens: 1_000,
      endpoints: [{ provider: 'a', pricing: { prompt: '0' } }],
    },
    { id: 'm/tighter', contextLength: 2_000, maxOutputTokens: 500, endpoints: [{ provider: 'b' }] },
    { id: 'm/vectors', outputModalities: ['embeddings'], contextLength: 10, endpoints: [{ provider: 'a' }] },
  ],
})

type Body = Record<string, unknown>

const MEASURES = { inputTokens: inputTokensOf, leastTokens: leastInputTokensOf, isInputBelow }
const SCOPE: RouteScope = { ownKeys: NO_CREDENTIALS, keyHash: 'k', dataRegion: null, ...MEASURES }

function ids(body: Body, scope: Partial<RouteScope> = {}): string[] {
  const request = parseResponsesRequest({ input: 'hi', ...body })
  const { candidates } = route(request, catalog, { ...SCOPE, ...scope })
  return candidates.map(({ endpoint }) => `${endpoint.modelId.slice(2)}@${endpoint.provider.slug}`)
}

function refusal(body: Body, scope: Partial<RouteScope> = {}): GatewayError {
  try {
    ids(body, scope)
  } catch (error) {
    if (error instanceof GatewayError) return error
  }
  throw new Error('was not refused')
}

const PARTS = {
  image: { type: 'input_image', image_url: 'https://example.test/a.png' },
  file: { type: 'input_file', file_data: 'data:application/pdf;base64,JVBERi0=' },
  audio: { type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' } },
  video: { type: 'input_video', video_url: 'https://example.test/a.mp4' },
}
const message = (...parts: object[]) => [
  { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'see' }, ...parts] },
]

t.test('a model that says what it takes is not asked with anything else', async t => {
  for (const [kind, part] of Object.entries(PARTS)) {
    const input = message(part)
    const error = refusal({ model: 'm/text', input })
    t.match(error, {
      status: 404,
      code: 'constraint_filtered',
      metadata: { availability: { excluded_by: ['input_modalities'], constraint: { field: 'input' } } },
    })
    t.match(error.message, `does not accept ${kind} input`)
    t.match(error.message, `input_modalities=${kind}`)
    t.equal(/file-parser/.test(error.message), kind === 'file')
    t.same(ids({ model: 'm/silent', input }), ['silent@a'], 'a row that does not say excludes nothing')
    const list = ids({ models: ['m/text', 'm/silent'], input })
    t.same(list, ['silent@a'], 'the next model of the request is asked')
  }
  t.same(ids({ model: 'm/sees', input: message(PARTS.image) }), ['sees@b'])
  t.same(ids({ models: ['m/text', 'm/sees'], input: message(PARTS.image) }), ['sees@b'])
  t.match(
    refusal({ model: 'm/sees', input: message(PARTS.image, PARTS.audio) }).message,
    /does not accept audio input/,
  )
})

t.test('the output of a tool has parts too', async t => {
  const input = [
    { type: 'function_call', call_id: 'c', name: 'shoot', arguments: '{}' },
    { type: 'function_call_output', call_id: 'c', output: [PARTS.image] },
  ]
  t.same(ids({ models: ['m/text', 'm/sees'], input }), ['sees@b'])
})

t.test('a part that a plugin turns into text needs no model that takes it', async t => {
  const plugins = { fitting: () => 'whole' as const, reads: (part: object) => 'file_data' in part }
  t.same(ids({ model: 'm/text', input: message(PARTS.file) }, { plugins }), ['text@a'])
  t.equal(refusal({ model: 'm/text', input: message(PARTS.image) }, { plugins }).status, 404)
})

t.test('an answer that is longer than the endpoint writes is asked elsewhere', async t => {
  t.same(
    ids({ model: 'm/both', max_output_tokens: 200 }),
    ['both@b'],
    'a row that does not say excludes nothing',
  )
  t.same(ids({ model: 'm/tight', max_output_tokens: 1_000 }), ['tight@a'])
  t.same(ids({ models: ['m/tighter', 'm/tight'], max_output_tokens: 800 }), ['tight@a'])
  const error = refusal({ models: ['m/tighter', 'm/tight'], max_output_tokens: 1_001 })
  t.match(error, {
    status: 400,
    metadata: {
      availability: { excluded_by: ['max_output_tokens'], constraint: { field: 'max_output_tokens' } },
    },
  })
  t.match(error.message, /^max_output_tokens: .*Ask for at most 1000\.$/)
  t.same(
    ids({ model: 'm/tight', max_output_tokens: 9_000 }, { isLimited: true }),
    ['tight@a'],
    'output is capped for a caller under a limit',
  )
})

t.test('a prompt that surely does not fit is not sent; one that may fit is', async t => {
  const words = (tokens: number) => 'word'.repeat(tokens)
  t.same(ids({ model: 'm/both', input: words(900) }).length, 2)
  t.same(ids({ model: 'm/both', input: words(1_200) }), ['both@b'], 'the estimate chooses')
  t.same(ids({ model: 'm/tight', input: words(4_500) }), ['tight@a'], 'an estimate refuses nothing')
  const error = refusal({ model: 'm/tight', input: words(6_000) })
  t.match(error, {
    status: 400,
    code: 'context_length_exceeded',
    metadata: { availability: { code: 'constraint_filtered', excluded_by: ['context_length'] } },
  })
  t.match(error.message, /4000 tokens\. .*the context-compression plugin\.$/)
  t.match(
    refusal({ model: 'm/tight', input: words(4_200), max_output_tokens: 900 }).message,
    /alongside 900 tokens of output.*ask for less output/,
  )
  t.same(
    ids({ models: ['m/tighter', 'm/tight'], input: words(3_000) }),
    ['tight@a'],
    'the next model has room',
  )
  const plugins = { fitting: () => 'cut' as const, reads: () => false }
  t.same(ids({ model: 'm/tight', input: words(60_000) }, { plugins }), ['tight@a'], 'a plugin cuts it')
})

t.test('several reasons are told together', async t => {
  const error = refusal({
    models: ['m/tight', 'm/text'],
    input: message(PARTS.image),
    max_output_tokens: 2_000,
  })
  t.match(error, { status: 404, code: 'constraint_filtered' })
  const reasons = JSON.stringify(error.metadata)
  t.match(reasons, /"excluded_by":\[[^\]]*"input_modalities"/)
  t.match(reasons, /"excluded_by":\[[^\]]*"max_output_tokens"/)
  t.match(error.message, /more output.*kinds of input/)
})

t.test('embeddings have a check of their own', async t => {
  const body = { model: 'm/vectors', input: 'word'.repeat(1_000) }
  t.same(ids(body, { dialect: 'embeddings' }), ['vectors@a'])
})

t.test('attachments count by their least, and long texts are bounded without reading them', async t => {
  const image = parseResponsesRequest({
    model: 'm/text',
    input: message({ ...PARTS.image, image_url: `data:image/png;base64,${'A'.repeat(1e6)}` }),
  })
  t.ok(inputTokensOf(image) > 1_000)
  t.ok(leastInputTokensOf(image) < 10)
  const bodies: Body[] = [
    { input: 'x'.repeat(400) },
    { input: '\u{4e2d}'.repeat(400), instructions: 'be brief' },
    { input: message(PARTS.image, PARTS.file, PARTS.audio) },
    {
      input: 'x',
      tools: [
        { type: 'function', name: 'f', parameters: { type: 'object', properties: { n: { minimum: 3 } } } },
      ],
      text: { format: { type: 'json_schema', name: 'n', schema: { type: 'object', required: ['a', 'b'] } } },
    },
  ]
  for (const body of bodies) {
    const request = parseResponsesRequest({ model: 'm/text', ...body })
    const tokens = inputTokensOf(request)
    t.notOk(isInputBelow(request, tokens - 1), 'never below what the estimate says')
    t.ok(isInputBelow(request, 100 * tokens))
    t.ok(leastInputTokensOf(request) <= tokens)
  }
})
