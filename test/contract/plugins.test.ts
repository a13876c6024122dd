/** The plugins that work on content, over real HTTP: what they change, what they refuse, and what they tell. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { loadConfig } from '../../src/process/config/config.ts'
import type { Config } from '../../src/process/config/settings.ts'
import { buildCatalog } from '../../src/process/wiring/catalog.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { parseEventStream, startGateway, type TestGateway } from '../support/gateway.ts'
import { ENCRYPTED, writePdf } from '../support/pdf.ts'
import { ScriptedProvider, type ScriptedReply } from '../support/provider.ts'

interface World {
  readonly gateway: TestGateway
  readonly provider: ScriptedProvider
}

const WITH_METADATA = { headers: { 'x-gateway-metadata': 'enabled' } }
const PRICING = { prompt: '0.000001', completion: '0.00001' }

async function start(t: Test, moderation: Config['moderation'] = null): Promise<World> {
  const provider = new ScriptedProvider()
  const baseUrl = await provider.listen()
  const endpoint = (upstreamModel: string) => ({ provider: 'acme', upstreamModel, pricing: PRICING })
  const gateway = await startGateway({
    moderation,
    providers: [{ slug: 'acme', name: 'Acme', format: 'openai-chat', baseUrl, apiKey: 'x' }],
    models: [
      { id: 'acme/model', name: 'Model', endpoints: [endpoint('model')] },
      {
        id: 'acme/plain',
        name: 'Plain',
        endpoints: [{ ...endpoint('plain'), supportedParameters: ['temperature', 'response_format'] }],
      },
      { id: 'acme/small', name: 'Small', contextLength: 2_048, endpoints: [endpoint('small')] },
      { id: 'acme/tiny', name: 'Tiny', contextLength: 512, endpoints: [endpoint('tiny')] },
      { id: 'acme/wide', name: 'Wide', contextLength: 20_000, endpoints: [endpoint('wide')] },
      {
        id: 'acme/reader',
        name: 'Reader',
        inputModalities: ['text', 'file'],
        endpoints: [endpoint('reader')],
      },
      { id: 'acme/moderator', name: 'Moderator', endpoints: [endpoint('moderator')] },
    ],
  })
  t.teardown(async () => {
    await gateway.close()
    await provider.close()
  })
  return { gateway, provider }
}

interface Told {
  readonly status: number
  readonly body: ResponseResource & {
    readonly error: { readonly message: string; readonly metadata: Readonly<Record<string, unknown>> } | null
  }
}

async function ask({ gateway }: World, body: object): Promise<Told> {
  const answer = await gateway.respond({ input: 'Hi', ...body }, WITH_METADATA)
  return { status: answer.status, body: (await answer.json()) as Told['body'] }
}

function textOf({ body }: Told): string {
  const message = body.output.find(item => item.type === 'message')
  const part = message?.type === 'message' && Array.isArray(message.content) ? message.content[0] : undefined
  return part?.type === 'output_text' ? part.text : ''
}

const stagesOf = ({ body }: Told) => body.gateway_metadata?.pipeline ?? []

const HEAL = { plugins: [{ id: 'response-healing' }] }
const OBJECT = { text: { format: { type: 'json_object' } } }
const schema = { type: 'object', properties: { a: { type: 'number' } }, required: ['a'] }
const strictly = (strict?: boolean) => ({
  text: {
    format: { type: 'json_schema', name: 'thing', schema, ...(strict === undefined ? {} : { strict }) },
  },
})

t.test('an answer that is nearly JSON leaves as JSON', async t => {
  const world = await start(t)
  const said = 'Here it is:\n```json\n{a: 1, "b": [1, 2,],}\n```\nAnything else?'
  for (const [form, mode] of [
    [OBJECT, 'json_object'],
    [strictly(), 'json_schema'],
  ] as const) {
    world.provider.script('model', [{ text: said }])
    const told = await ask(world, { model: 'acme/model', ...form, ...HEAL })
    t.equal(told.status, 200)
    t.same(JSON.parse(textOf(told)), { a: 1, b: [1, 2] })
    t.match(stagesOf(told), [
      {
        type: 'response_healing',
        name: 'response-healing',
        data: { mode, improved: true, original_length: said.length, healed_length: textOf(told).length },
      },
    ])
  }
})

t.test(
  'healing leaves alone what is JSON, what cannot be, what is streamed and what is no JSON at all',
  async t => {
    const world = await start(t)
    world.provider.script('model', [{ text: '{"a": 1.50}' }])
    const whole = await ask(world, { model: 'acme/model', ...OBJECT, ...HEAL })
    t.equal(textOf(whole), '{"a": 1.50}')
    t.same(stagesOf(whole), [])

    world.provider.script('model', [{ text: 'No idea.' }])
    const lost = await ask(world, { model: 'acme/model', ...OBJECT, ...HEAL })
    t.equal(textOf(lost), 'No idea.')
    t.match(stagesOf(lost), [{ data: { improved: false } }])

    world.provider.script('model', [{ text: '{a: 1}' }])
    t.equal(textOf(await ask(world, { model: 'acme/model', ...HEAL })), '{a: 1}')

    world.provider.script('model', [{ text: '{a: 1}' }])
    const off = { plugins: [{ id: 'response-healing', enabled: false }] }
    t.equal(textOf(await ask(world, { model: 'acme/model', ...OBJECT, ...off })), '{a: 1}')

    world.provider.script('model', [{ text: '{a: 1}' }])
    const streamed = await world.gateway.respond({
      model: 'acme/model',
      input: 'Hi',
      stream: true,
      ...OBJECT,
      ...HEAL,
    })
    const last = parseEventStream(await streamed.text()).at(-1)
    t.match(last, { response: { output: [{ content: [{ text: '{a: 1}' }] }] } })
  },
)

t.test('a strict schema that the provider does not enforce is enforced here', async t => {
  const world = await start(t)
  world.provider.script('plain', [{ text: '{"a": "one"}' }])
  const broken = await ask(world, { model: 'acme/plain', ...strictly(true) })
  t.equal(broken.status, 502)
  t.match(broken.body.error, {
    message: 'The model\'s answer does not match the requested schema: at "/a" (type)',
    metadata: { error_type: 'provider_unavailable' },
  })
  t.notMatch(JSON.stringify(broken.body), 'one')
  t.match(broken.body.usage, { output_tokens: 5 }, 'the call was made, so it counts')
  t.equal(world.provider.asked.length, 1, 'nobody else is asked')

  world.provider.script('plain', [{ text: '{"a": 1}' }])
  const fitting = await ask(world, { model: 'acme/plain', ...strictly(true) })
  t.equal(textOf(fitting), '{"a": 1}')
  t.same(stagesOf(fitting), [])

  world.provider.script('plain', [{ text: 'Sure: {a: 1}' }])
  const healed = await ask(world, { model: 'acme/plain', ...strictly(true), ...HEAL })
  t.equal(healed.status, 200)
  t.same(JSON.parse(textOf(healed)), { a: 1 })
})

t.test('without strict, and in a stream, an answer that breaks the schema is told and delivered', async t => {
  const world = await start(t)
  const stage = { name: 'structured-output', data: { valid: false, path: '/a', keyword: 'type' } }
  world.provider.script('plain', [{ text: '{"a": "one"}' }])
  const loose = await ask(world, { model: 'acme/plain', ...strictly() })
  t.equal(textOf(loose), '{"a": "one"}')
  t.match(stagesOf(loose), [stage])

  world.provider.script('plain', [{ text: '{"a": "one"}' }])
  const body = { model: 'acme/plain', input: 'Hi', stream: true, ...strictly(true) }
  const streamed = await world.gateway.respond(body, WITH_METADATA)
  const last = parseEventStream(await streamed.text()).at(-1)
  t.match(last, {
    type: 'response.completed',
    response: { output: [{ content: [{ text: '{"a": "one"}' }] }], gateway_metadata: { pipeline: [stage] } },
  })
})

t.test(
  'answers that are no answer yet are not checked, nor those of providers that enforce schemas',
  async t => {
    const world = await start(t)
    const replies: readonly (readonly [string, ScriptedReply])[] = [
      ['plain', { calls: [{ name: 'find', arguments: '{}' }] }],
      ['plain', { refusal: 'I would rather not.' }],
      ['model', { text: '{"a": "one"}' }],
    ]
    for (const [model, reply] of replies) {
      world.provider.script(model, [reply])
      const told = await ask(world, { model: `acme/${model}`, ...strictly(true) })
      t.equal(told.status, 200)
      t.same(stagesOf(told), [])
    }
  },
)

t.test('a hostile schema harms neither the answer nor the gateway', async t => {
  const world = await start(t)
  const hostile = { $ref: '#/$defs/a', $defs: { a: { $ref: '#/$defs/a' } } }
  world.provider.script('plain', [{ text: '{"a": 1}' }])
  const text = { format: { type: 'json_schema', name: 'thing', strict: true, schema: hostile } }
  const told = await ask(world, { model: 'acme/plain', text })
  t.equal(told.status, 200)
  t.match(stagesOf(told), [{ name: 'structured-output', data: { checked: false, reason: String } }])
})

/** Turns of some hundred tokens each, of which a small context takes more than half. */
const LONG = Array.from({ length: 24 }, (_, at) => ({
  type: 'message',
  role: at % 2 === 0 ? 'user' : 'assistant',
  content: `turn ${at}: ${'word '.repeat(80)}`,
}))
const said = (body: unknown) => JSON.stringify(body)

t.test('a long conversation with a small model loses its middle unasked', async t => {
  const world = await start(t)
  world.provider.script('small', [{ text: 'Fine' }])
  const told = await ask(world, { model: 'acme/small', input: LONG })
  t.equal(told.status, 200)
  t.match(stagesOf(told), [
    {
      type: 'context_compression',
      name: 'context-compression',
      data: { engine: 'middle-out', input_type: 'messages', original_count: 24, compressed_count: Number },
    },
  ])
  const sent = said(world.provider.asked[0]?.body)
  t.match(sent, 'turn 0:')
  t.match(sent, 'turn 23:')
  t.notMatch(sent, 'turn 11:')
  t.ok(sent.length < 2_048 * 4, 'and now fits')

  world.provider.script('small', [{ text: 'Fine' }])
  const short = await ask(world, { model: 'acme/small', input: LONG.slice(0, 2) })
  t.same(stagesOf(short), [], 'what fits is not touched')
})

t.test('one long prompt is cut in its middle', async t => {
  const world = await start(t)
  world.provider.script('small', [{ text: 'Fine' }])
  const told = await ask(world, { model: 'acme/small', input: `first ${'word '.repeat(2_000)}last` })
  const [stage] = stagesOf(told)
  t.match(stage?.data, { input_type: 'prompt', original_count: 10_010, compressed_count: Number })
  t.ok(Number(stage?.data?.['compressed_count']) < 2_048 * 4)
  t.match(said(world.provider.asked[0]?.body), /first .*last/)
})

t.test('larger models are compressed for only when asked to', async t => {
  const world = await start(t)
  const input = Array.from({ length: 10 }, () => LONG).flat()
  world.provider.script('wide', [{ text: 'Fine' }])
  t.same(stagesOf(await ask(world, { model: 'acme/wide', input })), [])
  world.provider.script('wide', [{ text: 'Fine' }])
  const plugins = [{ id: 'context-compression' }]
  t.match(stagesOf(await ask(world, { model: 'acme/wide', input, plugins })), [
    { type: 'context_compression' },
  ])
})

t.test(
  'with compression off a refusal of a long conversation names the plugin, whoever refuses it',
  async t => {
    const world = await start(t)
    const off = { plugins: [{ id: 'context-compression', enabled: false }] }
    const refused = await ask(world, { model: 'acme/small', input: [...LONG, ...LONG], ...off })
    t.equal(refused.status, 400)
    t.match(
      refused.body.error?.message,
      /2048 tokens.*Shorten the input, or add the context-compression plugin\.$/,
    )
    t.match(refused.body.error?.metadata, {
      error_type: 'context_length_exceeded',
      availability: {
        code: 'constraint_filtered',
        excluded_by: ['context_length'],
        constraint: { field: 'input' },
      },
    })
    t.equal(world.provider.asked.length, 0, 'it cannot fit, so nobody is asked')

    world.provider.script('small', [{ status: 400, code: 'context_length_exceeded' }])
    const input = LONG.slice(0, 14)
    const told = await ask(world, { model: 'acme/small', input, ...off })
    t.equal(told.status, 400)
    t.match(told.body.error?.message, /Shorten the input, or add the context-compression plugin\.$/)
    t.match(said(world.provider.asked[0]?.body), 'turn 13:')
  },
)

t.test('what cannot be made to fit is refused with 400, and nobody is asked', async t => {
  const world = await start(t)
  const plugins = [{ id: 'context-compression' }]
  const told = await ask(world, { model: 'acme/small', instructions: 'rule '.repeat(4_000), plugins })
  t.equal(told.status, 400)
  t.match(told.body.error, {
    message: /^input: is too long/,
    metadata: { error_type: 'context_length_exceeded' },
  })
  t.notMatch(told.body.error?.message, 'add the context-compression plugin')
  t.equal(world.provider.asked.length, 0)
})

t.test('a model that can take half of the input goes before one that cannot', async t => {
  const world = await start(t)
  world.provider.script('small', [{ text: 'Fine' }])
  const told = await ask(world, { models: ['acme/tiny', 'acme/small'], input: LONG })
  t.equal(told.body.model, 'acme/small')
})

t.test('a smaller model that takes over gets no more than it can take', async t => {
  const world = await start(t)
  const plugins = [{ id: 'context-compression' }]
  world.provider.script('small', [{ status: 500 }])
  world.provider.script('tiny', [{ text: 'Fine' }])
  const told = await ask(world, { models: ['acme/small', 'acme/tiny'], input: LONG, plugins })
  t.equal(told.body.model, 'acme/tiny')
  t.equal(stagesOf(told).length, 1, 'the whole prompt was cut once more')
  const [first = '', second = ''] = world.provider.asked.map(({ body }) => said(body['messages']))
  t.ok(first.length > 512 * 4)
  t.ok(second.length < 512 * 4)
})

const MODERATE = { plugins: [{ id: 'moderation' }] }
const MODERATOR = { model: 'acme/moderator' }
const verdict = (flagged: boolean, categories: readonly string[] = []): ScriptedReply => ({
  text: JSON.stringify({ flagged, categories }),
})

t.test('moderation without a model is refused', async t => {
  const world = await start(t)
  const told = await ask(world, { model: 'acme/model', ...MODERATE })
  t.equal(told.status, 400)
  t.equal(
    told.body.error?.message,
    'moderation: no moderation model is configured; the operator can set moderation.model',
  )
})

t.test('what moderation flags is refused, with an excerpt, before any model is asked', async t => {
  const world = await start(t, MODERATOR)
  world.provider.script('moderator', [verdict(true, ['violence', 'hate'])])
  const input = `begin ${'bad '.repeat(100)}end`
  const told = await ask(world, { model: 'acme/model', input, ...MODERATE })
  t.equal(told.status, 403)
  const metadata = told.body.error?.metadata ?? {}
  t.match(metadata, { reasons: ['violence', 'hate'], provider_name: String, model_slug: 'acme/model' })
  t.match(metadata['flagged_input'], /^begin bad .*\.\.\..*bad end$/)
  t.ok(String(metadata['flagged_input']).length <= 100)
  t.match(stagesOf(told), [{ type: 'guardrail', name: 'moderation', data: { flagged: true } }])
  t.same(
    world.provider.asked.map(({ model }) => model),
    ['moderator'],
  )
})

t.test('what moderation does not flag goes on', async t => {
  const world = await start(t, MODERATOR)
  world.provider.script('moderator', [verdict(false)])
  world.provider.script('model', [{ text: 'Fine' }])
  const told = await ask(world, { model: 'acme/model', input: 'A word', ...MODERATE })
  t.equal(textOf(told), 'Fine')
  t.match(stagesOf(told), [{ name: 'moderation', data: { flagged: false } }])
  t.match(said(world.provider.asked[0]?.body), 'A word')
})

t.test('a request that cannot be moderated is not let through', async t => {
  const world = await start(t, MODERATOR)
  for (const reply of [{ status: 500 }, { text: 'It seems fine.' }, { text: '{"flagged": "no"}' }]) {
    world.provider.script('moderator', [reply])
    const told = await ask(world, { model: 'acme/model', ...MODERATE })
    t.equal(told.status, 503)
    t.equal(told.body.error?.message, 'moderation: the moderation model gave no usable answer; try again')
  }
  const zdr = await ask(world, { model: 'acme/model', provider: { zdr: true }, ...MODERATE })
  t.equal(zdr.status, 400)
  t.equal(world.provider.asked.filter(({ model }) => model === 'model').length, 0)
})

t.test('a moderation model that the catalogue does not have is a mistake of the configuration', async t => {
  const plain = loadConfig([], {})
  // Models that providers tell of are not known at the start.
  const catalogue = { ...plain.catalogue, discover: false }
  const config = { ...plain, catalogue, moderation: { model: 'acme/none' } }
  t.throws(() => buildCatalog(config, 'http://127.0.0.1:9'), {
    message: 'moderation.model: there is no such model',
  })
})

const PARSE = { plugins: [{ id: 'file-parser' }] }
const dataUrl = (bytes: Uint8Array) => `data:application/pdf;base64,${Buffer.from(bytes).toString('base64')}`
const PDF = dataUrl(writePdf({ pages: ['The code is heron', 'Second page'] }))
const asking = (file_data: string) => ({
  type: 'message',
  role: 'user',
  content: [
    { type: 'input_text', text: 'What is the code?' },
    { type: 'input_file', filename: 'code.pdf', file_data },
  ],
})

t.test(
  'a PDF becomes text for a model that takes no files, and its text goes back with the answer',
  async t => {
    const world = await start(t)
    world.provider.script('model', [{ text: 'heron' }, { text: 'Yes' }])
    const told = await ask(world, { model: 'acme/model', input: [asking(PDF)], ...PARSE })
    t.equal(told.status, 200)
    const sent = said(world.provider.asked[0]?.body)
    t.match(sent, 'The code is heron')
    t.match(sent, 'Second page')
    t.notMatch(sent, 'base64')
    t.match(stagesOf(told), [{ type: 'plugin', name: 'file-parser', data: { engine: 'pdf-text', pages: 2 } }])
    t.match(told.body.output, [
      {
        content: [
          {
            annotations: [
              {
                type: 'file',
                file: {
                  hash: /^[0-9a-f]{64}$/,
                  name: 'code.pdf',
                  content: [{ type: 'text', text: 'The code is heron' }, { text: 'Second page' }],
                },
              },
            ],
          },
        ],
      },
    ])

    const again = { role: 'user', type: 'message', content: 'Sure?' }
    const input = [asking(PDF), ...told.body.output, again]
    const second = await ask(world, { model: 'acme/model', input, ...PARSE })
    t.equal(second.status, 200)
    t.same(stagesOf(second), [], 'nothing was read again')
    t.match(said(world.provider.asked[1]?.body), 'The code is heron')
  },
)

t.test('a model that takes files gets the PDF as it is, unless the text engine is named', async t => {
  const world = await start(t)
  world.provider.script('reader', [{ text: 'heron' }, { text: 'heron' }])
  await ask(world, { model: 'acme/reader', input: [asking(PDF)], ...PARSE })
  t.match(said(world.provider.asked[0]?.body), 'application/pdf;base64')
  const plugins = [{ id: 'file-parser', pdf: { engine: 'pdf-text' } }]
  await ask(world, { model: 'acme/reader', input: [asking(PDF)], plugins })
  t.notMatch(said(world.provider.asked[1]?.body), 'application/pdf;base64')
})

t.test(
  'a stream has the text of a PDF as well, and refuses one that cannot be read before it begins',
  async t => {
    const world = await start(t)
    world.provider.script('model', [{ text: 'heron' }])
    const body = { model: 'acme/model', stream: true, ...PARSE }
    const answer = await world.gateway.respond({ ...body, input: [asking(PDF)] })
    t.match(parseEventStream(await answer.text()).at(-1), { type: 'response.completed' })
    t.match(said(world.provider.asked[0]?.body), 'The code is heron')
    const refused = await world.gateway.respond({ ...body, input: [asking(dataUrl(Buffer.from('hello')))] })
    t.equal(refused.status, 400)
    await refused.text()
  },
)

t.test('a document that cannot be read is refused by its path', async t => {
  const world = await start(t)
  const cases: readonly (readonly [string, RegExp])[] = [
    [dataUrl(Buffer.from('hello')), /is not a PDF$/],
    [dataUrl(writePdf({ pages: ['secret'], trailer: ENCRYPTED })), /is encrypted$/],
    [dataUrl(writePdf({ pages: [''] })), /contains no text/],
  ]
  for (const [file, why] of cases) {
    const told = await ask(world, { model: 'acme/model', input: [asking(file)], ...PARSE })
    t.equal(told.status, 400)
    t.match(told.body.error?.message, /^input\[0\]\.content\[1\]\.file_data: the document /)
    t.match(told.body.error?.message, why)
  }
  const plugins = [{ id: 'file-parser', pdf: { engine: 'mistral-ocr' } }]
  const ocr = await ask(world, { model: 'acme/model', input: [asking(PDF)], plugins })
  t.equal(ocr.status, 400)
  t.match(ocr.body.error?.message, 'mistral-ocr is not configured; the operator can set files.ocr.provider')
  const many = { type: 'message', role: 'user', content: Array(17).fill(asking(PDF).content[1]) }
  t.equal((await ask(world, { model: 'acme/model', input: [many], ...PARSE })).status, 400)
  t.equal(world.provider.asked.length, 0)
})

t.test('the requests of docs/plugins.md are answered as it says', async t => {
  const world = await start(t)
  const page = readFileSync(join(import.meta.dirname, '../../docs/plugins.md'), 'utf8')
  const requests = [...page.matchAll(/-d '(\{[^']*)'/g)].map(
    ([, json = '']) => JSON.parse(json) as { readonly plugins: readonly { readonly id: string }[] },
  )
  const requestOf = (id: string) => requests.find(({ plugins }) => plugins[0]?.id === id) ?? {}
  const healed = await ask(world, requestOf('response-healing'))
  t.equal(textOf(healed), '{"a": 1, "b": [1, 2]}')
  t.ok(page.includes(`\n${textOf(healed)}\n\`\`\``), 'the page shows the text that comes back')
  const [stage] = stagesOf(healed)
  t.ok(page.includes(`"original_length": ${stage?.data?.['original_length']}, "healed_length": 21`))
  const compressed = await ask(world, requestOf('context-compression'))
  t.equal(textOf(compressed), 'Hello')
})
