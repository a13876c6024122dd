/** Requests for embeddings in each format, and what a format cannot say. */
import t from 'tap'
import { createEmbeddings } from '../../../src/dialects/embeddings.ts'
import { EMBEDDINGS_FORMATS } from '../../../src/formats/embeddings/table.ts'
import {
  EMBEDDINGS_FORMAT_NAMES,
  type EmbeddingsFormatName,
  type Quirk,
} from '../../../src/protocol/provider.ts'
import { OFFERED } from '../../support/dialects.ts'
import { endpointOf } from '../../support/endpoint.ts'

const dialect = createEmbeddings(OFFERED)

interface More {
  readonly quirks?: readonly Quirk[]
  readonly endUser?: string
  readonly upstreamModel?: string
  readonly supported?: readonly string[]
}

function encode(
  name: EmbeddingsFormatName,
  body: object,
  { quirks = [], endUser, upstreamModel = 'm', supported }: More = {},
) {
  const { request, settings } = dialect.parse({ model: 'acme/x', ...body })
  return EMBEDDINGS_FORMATS[name].encode(
    { request, settings, endUser: endUser ?? null },
    endpointOf(name, {
      quirks,
      upstreamModel,
      ...(supported === undefined ? {} : { supportedParameters: new Set(supported) }),
    }),
  )
}

const PICTURE = 'data:image/png;base64,iVBORw0KGgo='
const MIXED = [
  {
    content: [
      { type: 'text', text: 'a cat' },
      { type: 'image_url', image_url: { url: PICTURE } },
    ],
  },
  { content: [{ type: 'text', text: 'a dog' }] },
]
const LINKED = [{ content: [{ type: 'image_url', image_url: { url: 'https://example.com/cat.png' } }] }]

t.test('openai-embeddings says what the caller said, under the names of the provider', async t => {
  const full = {
    input: ['a', 'b'],
    dimensions: 256,
    encoding_format: 'base64',
    input_type: 'search_query',
    user: 'somebody',
    session_id: 's',
    trace: { trace_id: 't' },
    provider: { sort: 'price' },
    metadata: { a: 'b' },
    temperature: 1,
    truncate_prompt_tokens: 512,
  }
  t.same(encode('openai-embeddings', full, { endUser: 'hash' }), {
    path: '/embeddings',
    body: {
      truncate_prompt_tokens: 512,
      model: 'm',
      input: ['a', 'b'],
      dimensions: 256,
      encoding_format: 'base64',
      user: 'hash',
    },
  })
  const voyage: Quirk[] = ['output-dimension', 'input-type', 'cuts-texts', 'no-user']
  t.same(encode('openai-embeddings', full, { endUser: 'hash', quirks: voyage }).body, {
    truncate_prompt_tokens: 512,
    model: 'm',
    input: ['a', 'b'],
    output_dimension: 256,
    encoding_format: 'base64',
    input_type: 'query',
    truncation: false,
  })
  for (const quirk of ['float-vectors', 'int8-vectors'] as const) {
    t.notHas(
      encode('openai-embeddings', full, { quirks: [quirk] }).body,
      { encoding_format: 'base64' },
      quirk,
    )
  }
})

t.test(
  'openai-embeddings has one input where the caller has one, and asks for numbers by silence',
  async t => {
    const bodyOf = (input: unknown) => encode('openai-embeddings', { input, encoding_format: 'float' }).body
    for (const input of ['a', ['a'], ['a', 'b'], [1, 2], [[1, 2]], [[1], [2]]]) {
      t.same(bodyOf(input), { model: 'm', input })
    }
    t.same(bodyOf(MIXED), { model: 'm', input: MIXED })
  },
)

t.test('supportedParameters of an endpoint say what openai-embeddings may send', async t => {
  const asked = { input: 'a', encoding_format: 'base64', input_type: 'query' }
  t.same(encode('openai-embeddings', asked, { supported: ['dimensions'] }).body, { model: 'm', input: 'a' })
  t.same(encode('openai-embeddings', asked, { supported: ['encoding_format', 'input_type'] }).body, {
    model: 'm',
    input: 'a',
    encoding_format: 'base64',
    input_type: 'query',
  })
})

t.test('unknown fields never replace what the encoder writes', async t => {
  const hostile = JSON.parse(
    '{"input":"a","upstream_model":"x","dimension":1,"constructor_":1,"hasOwnProperty":1,"output_dtype":"float"}',
  )
  const { body } = encode('openai-embeddings', hostile)
  t.equal(body['model'], 'm')
  t.same(Object.keys(body).sort(), [
    'constructor_',
    'dimension',
    'hasOwnProperty',
    'input',
    'model',
    'output_dtype',
    'upstream_model',
  ])
})

t.test('cohere-embeddings', async t => {
  t.same(encode('cohere-embeddings', { input: 'a', encoding_format: 'base64', user: 'u', anything: 1 }), {
    path: '/embed',
    body: {
      model: 'm',
      input_type: 'search_document',
      texts: ['a'],
      embedding_types: ['float'],
      truncate: 'NONE',
    },
  })
  t.match(
    encode('cohere-embeddings', { input: ['a', 'b'], dimensions: 512, input_type: 'RETRIEVAL_QUERY' }).body,
    {
      input_type: 'search_query',
      output_dimension: 512,
    },
  )
  t.same(encode('cohere-embeddings', { input: MIXED }).body['inputs'], MIXED)
  t.same(encode('cohere-embeddings', { input: MIXED.slice(1) }).body['texts'], ['a dog'])
})

t.test('gemini-embeddings', async t => {
  t.same(encode('gemini-embeddings', { input: ['a', 'b'], dimensions: 64, input_type: 'passage' }), {
    path: '/models/m:batchEmbedContents',
    body: {
      requests: ['a', 'b'].map(text => ({
        model: 'models/m',
        content: { parts: [{ text }] },
        taskType: 'RETRIEVAL_DOCUMENT',
        outputDimensionality: 64,
      })),
    },
  })
  t.same(encode('gemini-embeddings', { input: MIXED }).body['requests'], [
    {
      model: 'models/m',
      content: {
        parts: [{ text: 'a cat' }, { inlineData: { mimeType: 'image/png', data: 'iVBORw0KGgo=' } }],
      },
    },
    { model: 'models/m', content: { parts: [{ text: 'a dog' }] } },
  ])
  t.throws(() => encode('gemini-embeddings', { input: 'a' }, { upstreamModel: '..' }), {
    code: 'unprocessable',
  })
})

t.test('vertex-embeddings', async t => {
  t.same(
    encode('vertex-embeddings', { input: ['a', 'b'], dimensions: 64, input_type: 'semantic_similarity' }),
    {
      path: '/models/m:predict',
      body: {
        instances: ['a', 'b'].map(content => ({ content, task_type: 'SEMANTIC_SIMILARITY' })),
        parameters: { autoTruncate: false, outputDimensionality: 64 },
      },
    },
  )
})

t.test('ollama-embeddings', async t => {
  t.same(encode('ollama-embeddings', { input: 'a', dimensions: 64, input_type: 'query' }), {
    path: '/embed',
    body: { model: 'm', input: ['a'], truncate: false, dimensions: 64 },
  })
})

t.test('several text parts of one input are lines of it where a provider takes one text', async t => {
  const input = [{ content: ['a', 'b'].map(text => ({ type: 'text', text })) }]
  t.same(encode('ollama-embeddings', { input }).body['input'], ['a\nb'])
  t.same(encode('vertex-embeddings', { input }).body['instances'], [{ content: 'a\nb' }])
})

t.test('what a format cannot say is refused with its path', async t => {
  const cases: readonly (readonly [EmbeddingsFormatName, object, RegExp])[] = [
    ['cohere-embeddings', { input: [[1], [2]] }, /^input\[0\]: token ids/],
    ['gemini-embeddings', { input: [1, 2] }, /^input: token ids/],
    ['vertex-embeddings', { input: [1] }, /^input: token ids/],
    ['ollama-embeddings', { input: [[1]] }, /^input\[0\]: token ids/],
    ['vertex-embeddings', { input: MIXED }, /^input\[0\]\.content\[1\]: this provider embeds only text/],
    ['ollama-embeddings', { input: MIXED }, /^input\[0\]\.content\[1\]: /],
    ['gemini-embeddings', { input: LINKED }, /^input\[0\]\.content\[0\]\.image_url\.url: must be a data URL/],
    ['cohere-embeddings', { input: LINKED }, /^input\[0\]\.content\[0\]\.image_url\.url: must be a data URL/],
    [
      'cohere-embeddings',
      { input: 'a', input_type: 'fact_verification' },
      /^input_type: must be one of query, /,
    ],
    ['gemini-embeddings', { input: 'a', input_type: 'anything' }, /^input_type: /],
  ]
  for (const [name, body, says] of cases) {
    t.throws(() => encode(name, body), { code: 'unprocessable', message: says }, `${name} ${says.source}`)
  }
})

t.test('each format tells truly what it takes', async t => {
  for (const name of EMBEDDINGS_FORMAT_NAMES) {
    const format = EMBEDDINGS_FORMATS[name]
    t.equal(format.name, name)
    const endpoint = endpointOf(name)
    const encodes = (body: object): boolean => {
      try {
        encode(name, body)
        return true
      } catch {
        return false
      }
    }
    t.equal(encodes({ input: [1, 2] }), format.takes('tokens', endpoint), `${name}: tokens`)
    t.equal(encodes({ input: MIXED }), format.takes('images', endpoint), `${name}: images`)
    t.ok(format.takes('dimensions', endpoint))
  }
  const openai = EMBEDDINGS_FORMATS['openai-embeddings']
  t.notOk(openai.takes('input_type', endpointOf('openai-embeddings')))
  t.ok(openai.takes('input_type', endpointOf('openai-embeddings', { quirks: ['input-type'] })))
})
