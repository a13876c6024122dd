import t from 'tap'
import { ImportError, readList, readModels } from '../../src/providers/known-models.ts'

const of = (...models: unknown[]) => JSON.stringify({ data: models })

function faultsOf(text: string): string {
  try {
    readModels(text)
  } catch (error) {
    if (error instanceof ImportError) return error.message
    throw error
  }
  return ''
}

t.test('a model of the public shape is read with its prices, lengths, modalities and date', async t => {
  const text = of({
    id: 'acme/fast-1',
    name: 'Acme: Fast 1',
    created: 1_760_000_000,
    context_length: 1_000_000,
    architecture: { input_modalities: ['text', 'image'], output_modalities: ['text'], tokenizer: 'Other' },
    top_provider: { context_length: 900_000, max_completion_tokens: 65_536, is_moderated: true },
    supported_parameters: ['tools', 'max_tokens'],
    pricing: {
      prompt: '0.00000125',
      completion: '1e-5',
      request: '0',
      image: '0.00516',
      audio: '0',
      web_search: '0.01',
      internal_reasoning: '0',
      input_cache_read: '0.00000031',
      input_cache_write: 0.000001625,
      input_cache_write_1h: '0.0000025',
      overrides: [
        { min_prompt_tokens: 200_000, prompt: '0.0000025', completion: '0.000015' },
        { utc_start: 16, utc_end: 24, min_prompt_tokens: 1, prompt: '0' },
      ],
    },
  })
  t.strictSame(readModels(text), [
    {
      id: 'acme/fast-1',
      name: 'Acme: Fast 1',
      created: 1_760_000_000,
      contextLength: 1_000_000,
      maxOutputTokens: 65_536,
      inputModalities: ['text', 'image'],
      outputModalities: ['text'],
      supportedParameters: ['tools', 'max_tokens'],
      pricing: {
        prompt: '0.00000125',
        completion: '0.00001',
        request: '0',
        image: '0.00516',
        inputCacheRead: '0.00000031',
        inputCacheWrite: '0.000001625',
        inputCacheWrite1h: '0.0000025',
        overrides: [{ minPromptTokens: 200_000, prompt: '0.0000025', completion: '0.000015' }],
      },
    },
  ])
  t.same(readModels(JSON.stringify([{ id: 'a/b' }])), [{ id: 'a/b' }], 'the bare list')
})

t.test('prices are exact to 1e-12 USD; a negative or missing one is unknown', async t => {
  const priceOf = (prompt: unknown) =>
    readModels(of({ id: 'a/b', pricing: { prompt, completion: '0' } }))[0]?.pricing
  t.equal(priceOf('0.0000000000004')?.prompt, '0')
  t.equal(priceOf('0.0000000000005')?.prompt, '0.000000000001')
  t.equal(priceOf('0.00000007619999999')?.prompt, '0.0000000762')
  t.equal(priceOf(3e-7)?.prompt, '0.0000003')
  for (const unknown of ['-1', -1, null, undefined]) t.equal(priceOf(unknown), undefined, String(unknown))
})

t.test('what is not said of a price never makes a model free', async t => {
  const told = (pricing: unknown, fields: object = {}) =>
    readList(of({ id: 'fast', pricing, ...fields }))?.models[0]?.pricing
  const imported = (pricing: unknown, fields: object = {}) =>
    readModels(of({ id: 'a/b', pricing, ...fields }))[0]?.pricing
  t.equal(told({ prompt: '0.000001' }), undefined, 'no price of output')
  t.equal(imported({ prompt: '0.000001' }), undefined)
  t.equal(imported({ prompt: '0' }), undefined)
  const embeds = { architecture: { output_modalities: ['embeddings'] } }
  t.same(
    imported({ prompt: '0.000001' }, embeds),
    { prompt: '0.000001' },
    'embeddings have no output to pay for',
  )
  t.same(told({ prompt: '0.000001' }, { id: 'embed-1' }), { prompt: '0.000001' })
  const bad = ['free', '', '1e300', 1e300, true, {}, [], 'NaN', '0x1', ' '.repeat(1_000)]
  for (const completion of bad) t.equal(told({ prompt: '0.000001', completion }), undefined, `${completion}`)
  for (const request of bad)
    t.equal(told({ prompt: '0.000001', completion: '0', request }), undefined, `request ${request}`)
})

t.test('a price that can only be one of a million tokens is none of a token', async t => {
  const pricing = { prompt: 0.3, completion: 1.2 }
  t.equal(readList(of({ id: 'fast', pricing }))?.models[0]?.pricing, undefined)
  t.match(faultsOf(of({ id: 'a/b', pricing })), /^data\[0\]\.pricing\.prompt: expected .* per token/)
  const dear = { prompt: '0.00015', completion: '0.0006', request: '0.5', image: '0.2' }
  t.same(readList(of({ id: 'fast', pricing: dear }))?.models[0]?.pricing, dear)
})

t.test('a file that cannot be imported is refused with the place of each fault', async t => {
  const cases = [
    ['<html>', /^is not JSON: expected the answer to GET \/models/],
    ['{}', /^has no list of models/],
    ['{"data":[]}', /^data: is empty$/],
    [of('x'), /^data\[0\]: expected an object$/],
    [of({ id: 'a/b' }, { name: 'x' }), /^data\[1\]\.id: expected the form author\/name$/],
    [of({ id: 'a/../b' }), /^data\[0\]\.id: /],
    [of({ id: 'a/b', context_length: '8k' }), /^data\[0\]\.context_length: expected a number$/],
    [
      of({ id: 'a/b', pricing: { prompt: '$1' } }),
      /^data\[0\]\.pricing\.prompt: expected a price in US dollars/,
    ],
    [of({ id: 'a/b', pricing: { prompt: '1000' } }), /^data\[0\]\.pricing\.prompt: /],
    [of({ id: 'a/b', pricing: [] }), /^$/],
  ] as const
  for (const [text, says] of cases) t.match(faultsOf(text), says, text)
  const many = faultsOf(of(...Array.from({ length: 30 }, () => ({}))))
  t.equal(many.split('\n').length, 11)
  t.match(many, /and 20 more$/)
})

t.test('names of newest models and repeated ids are left out', async t => {
  const models = readModels(
    of({ id: '~a/b-latest' }, { id: 'a/b', name: 'first' }, { id: 'a/b', name: 'second' }),
  )
  t.same(models, [{ id: 'a/b', name: 'first' }])
})

t.test('hostile names and words do not get into the catalogue', async t => {
  const [model] = readModels(
    of({
      id: 'a/b',
      name: `\u001b[31mred\n${'x'.repeat(1000)}`,
      created: 1e300,
      context_length: -5,
      architecture: { input_modalities: ['text', '<script>', 7] },
      __proto__: { polluted: true },
    }),
  )
  t.equal(model?.name?.length, 256)
  t.match(model?.name, /^\[31mred/)
  t.same(Object.keys(model ?? {}).sort(), ['id', 'inputModalities', 'name'])
  t.same(model?.inputModalities, ['text'])
})

t.test('lists of providers are read in each known shape', async t => {
  t.same(
    readList(
      '{"object":"list","data":[{"id":"m-1","created":5,"context_window":8192},{"id":"whisper-1"},{"x":1}]}',
    ),
    {
      models: [{ id: 'm-1', created: 5, contextLength: 8192 }],
      leftOut: 0,
      next: null,
    },
  )
  t.same(readList('[{"id":"org/m","display_name":"M","max_model_len":10}]')?.models, [
    { id: 'org/m', name: 'M', contextLength: 10 },
  ])
  t.same(
    readList(
      '{"data":[{"type":"model","id":"claude-x","display_name":"X","created_at":"2025-01-01T00:00:00Z"}],"has_more":true,"last_id":"claude x"}',
    ),
    {
      models: [{ id: 'claude-x', name: 'X', created: 1_735_689_600 }],
      leftOut: 0,
      next: 'after_id=claude%20x',
    },
  )
  t.same(
    readList(
      JSON.stringify({
        models: [
          {
            name: 'models/g-1',
            displayName: 'G',
            inputTokenLimit: 9,
            outputTokenLimit: 3,
            supportedGenerationMethods: ['generateContent'],
          },
          { name: 'models/e-1', supportedGenerationMethods: ['embedContent'] },
          { name: 'models/v-1', supportedGenerationMethods: ['predict'] },
        ],
        nextPageToken: 'n&x',
      }),
    ),
    {
      models: [
        { id: 'g-1', name: 'G', contextLength: 9, maxOutputTokens: 3 },
        { id: 'e-1', outputModalities: ['embeddings'] },
      ],
      leftOut: 0,
      next: 'pageToken=n%26x',
    },
  )
  for (const text of ['', 'null', '{}', '{"data":5}', '"x"']) t.equal(readList(text), null, text)
})
