/** What guardrails say about where data goes holds for the models and providers that the gateway asks by itself. */
import t from 'tap'
import { loadConfig } from '../../src/process/config/config.ts'
import { writePdf } from '../support/pdf.ts'
import { speaking, startParrot } from '../support/provider.ts'
import { type Reply, startGuarded } from '../support/world.ts'

const MODEL = 'kept/model'
const VENDORS = { anthropic: null, openai: null, google: null, xai: null, other: null }

const helper = await startParrot()
t.teardown(() => helper.close())
const { parrot, guard, ask } = await startGuarded(t, {
  providers: [{ slug: 'helper', name: 'Helper', format: 'openai-chat', baseUrl: helper.url, apiKey: 'k' }],
  models: [
    { id: MODEL, name: 'Kept', endpoints: [{ provider: 'parrot', upstreamModel: 'parrot', zdr: true }] },
    {
      id: 'helper/side',
      name: 'Side',
      endpoints: [{ provider: 'helper', upstreamModel: 'side', pricing: { prompt: '1', completion: '1' } }],
    },
  ],
  alignment: { evaluator: { model: 'helper/side' }, hipaaWorkspaces: [], timeoutMs: 5_000 },
  moderation: { model: 'helper/side' },
  files: {
    ...loadConfig([], {}).files,
    ocr: { provider: 'helper', model: 'ocr-1', timeoutMs: 5_000 },
  },
})
const errorOf = ({ document }: Reply) => document['error'] as { readonly message: string }

const PDF = Buffer.from(writePdf({ pages: ['The code is heron'] })).toString('base64')
const MODERATED = { model: MODEL, input: 'Hello', plugins: [{ id: 'moderation' }] }
const ALIGNED = { model: MODEL, input: 'Hello', plugins: [{ id: 'alignment', rules: ['Be kind'] }] }
const read = (settings: object) => ({
  model: MODEL,
  input: [
    {
      role: 'user',
      content: [{ type: 'input_file', file_data: `data:application/pdf;base64,${PDF}` }],
    },
  ],
  plugins: [{ id: 'file-parser', ...settings }],
})
const RECOGNIZED = read({ pdf: { engine: 'mistral-ocr' } })

for (const [rule, rules] of [
  ['guardrail:training', { enablePaidModelTraining: false }],
  ['guardrail:allowed_providers', { allowedProviders: ['parrot'] }],
  ['guardrail:ignored_providers', { ignoredProviders: ['Helper'] }],
] as const) {
  t.test(`texts go to no helper that ${rule} forbids, and the caller is told`, async t => {
    await guard(rules)
    helper.bodies.length = 0
    parrot.bodies.length = 0
    for (const [body, message] of [
      [
        MODERATED,
        `moderation: a guardrail on this API key does not allow sending the input to the moderation model (${rule})`,
      ],
      [ALIGNED, `Alignment plugin: the request cannot be evaluated: ${rule}`],
      [
        RECOGNIZED,
        `plugins[0].pdf.engine: mistral-ocr: a guardrail on this API key does not allow its provider (${rule})`,
      ],
    ] as const) {
      const reply = await ask(body)
      t.equal(reply.status, 400, reply.text)
      t.equal(errorOf(reply).message, message)
    }
    t.same([...helper.bodies, ...parrot.bodies], [], 'nobody was asked')
    const reply = await ask(read({}))
    t.equal(reply.status, 200, reply.text)
    t.match(parrot.bodies, [/The code is heron/], 'it was read here')
    t.same(helper.bodies, [])
  })
}

t.test('zero retention of any vendor keeps texts from all helpers', async t => {
  await guard({ enforceZdr: { ...VENDORS, xai: true } })
  helper.bodies.length = 0
  for (const body of [MODERATED, ALIGNED, RECOGNIZED]) t.equal((await ask(body)).status, 400)
  t.same(helper.bodies, [])
})

t.test('which models a caller may use says nothing about the helpers', async t => {
  await guard({
    allowedModels: [MODEL],
    ignoredModels: ['helper/side'],
    allowedProviders: ['parrot', 'helper'],
  })
  helper.bodies.length = 0
  helper.parts = speaking('{"flagged": false}')
  t.equal((await ask(MODERATED)).status, 200)
  helper.parts = speaking('{"probabilities": [0]}')
  t.equal((await ask(ALIGNED)).status, 200)
  t.equal(helper.bodies.length, 2)
})
