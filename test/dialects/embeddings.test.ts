/** Bodies of POST /embeddings: every form of input, and the path of what is wrong. */
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { createEmbeddings } from '../../src/dialects/embeddings.ts'
import { EMBEDDING_DIMENSIONS_MAX, EMBEDDING_INPUTS_MAX, TOKEN_ID_MAX } from '../../src/protocol/limits.ts'
import { OFFERED } from '../support/dialects.ts'

const dialect = createEmbeddings(OFFERED)
const parse = (body: object) => dialect.parse({ model: 'acme/x', ...body })
const text = (content: string) => ({ type: 'message', role: 'user', content })
const tokens = (...ids: number[]) => ({ ...text(''), tokens: ids })

t.test('each form of input becomes one message for each vector', async t => {
  const cases: readonly (readonly [unknown, readonly object[], boolean])[] = [
    ['a', [text('a')], false],
    [['a'], [text('a')], true],
    [['a', 'b'], [text('a'), text('b')], true],
    [[1, 2], [tokens(1, 2)], false],
    [[[1, 2], [3]], [tokens(1, 2), tokens(3)], true],
    [
      [
        {
          content: [
            { type: 'text', text: 'a' },
            { type: 'image_url', image_url: { url: 'https://x/y' } },
          ],
        },
      ],
      [
        {
          ...text(''),
          content: [
            { type: 'input_text', text: 'a' },
            { type: 'input_image', image_url: 'https://x/y' },
          ],
        },
      ],
      true,
    ],
  ]
  for (const [input, items, isList] of cases) {
    const { request, settings } = parse({ input })
    t.same(request.input, items)
    t.equal(settings.isList, isList)
  }
})

t.test('settings have defaults, and null means absent', async t => {
  t.same(parse({ input: 'a' }).settings, {
    dimensions: null,
    encoding: 'float',
    inputType: null,
    isList: false,
  })
  const nulls = {
    dimensions: null,
    encoding_format: null,
    input_type: null,
    user: null,
    provider: null,
    trace: null,
  }
  const { request, settings } = parse({ input: 'a', ...nulls, session_id: null, stream: false })
  t.same(settings, parse({ input: 'a' }).settings)
  t.same(Object.keys(request).sort(), ['input', 'model'])
  t.same(parse({ input: 'a', dimensions: 7, encoding_format: 'base64', input_type: 'query' }).settings, {
    dimensions: 7,
    encoding: 'base64',
    inputType: 'query',
    isList: false,
  })
})

t.test('a request keeps what routing needs and what the gateway does not know, and nothing else', async t => {
  const kept = {
    user: 'u',
    session_id: 's',
    safety_identifier: 'i',
    trace: { trace_id: 't' },
    provider: { zdr: true },
  }
  const dropped = {
    temperature: 'hot',
    max_output_tokens: -1,
    tool_choice: 5,
    metadata: 7,
    instructions: 'x',
  }
  const { request } = parse({ input: 'a', ...kept, ...dropped, unknown: { deep: [1] } })
  t.same(request, { model: 'acme/x', input: [text('a')], ...kept, unknown: { deep: [1] } })
})

const many = <T>(value: T, count: number): T[] => Array.from({ length: count }, () => value)

t.test('as many inputs as may be are taken', async t => {
  t.equal(parse({ input: many('a', EMBEDDING_INPUTS_MAX) }).request.input.length, EMBEDDING_INPUTS_MAX)
  t.equal(parse({ input: many(TOKEN_ID_MAX, 300_000) }).request.input[0]?.tokens?.length, 300_000)
  t.equal(
    parse({ input: 'a', dimensions: EMBEDDING_DIMENSIONS_MAX }).settings.dimensions,
    EMBEDDING_DIMENSIONS_MAX,
  )
})

t.test('errors name the field by its path, and repeat nothing', async t => {
  const part = (content: unknown) => ({ input: [{ content }] })
  const cases: readonly (readonly [object, RegExp])[] = [
    [{}, /^input: is required and must be a string, or an array of strings, /],
    [{ input: null }, /^input: must be a string, or an array/],
    [{ input: 7 }, /^input: must be a string, or an array/],
    [{ input: { content: [] } }, /^input: must be a string, or an array/],
    [{ input: '' }, /^input: must not be empty/],
    [{ input: [] }, /^input: must have at least 1 element/],
    [{ input: [''] }, /^input\[0\]: must not be empty/],
    [{ input: ['a', ''] }, /^input\[1\]: must not be empty/],
    [{ input: ['a', 5] }, /^input\[1\]: must be a string, like the first element/],
    [{ input: ['a', ['b']] }, /^input\[1\]: must be a string/],
    [{ input: [null] }, /^input\[0\]: must be a string, a token id, /],
    [{ input: [true, 'a'] }, /^input\[0\]: must be a string, a token id, /],
    [{ input: [1, 'a'] }, /^input\[1\]: must be a token id: an integer from 0 to 2147483647/],
    [{ input: [1, 1.5] }, /^input\[1\]: must be a token id/],
    [{ input: [-1] }, /^input\[0\]: must be a token id/],
    [{ input: [2 ** 31] }, /^input\[0\]: must be a token id/],
    [{ input: [[]] }, /^input\[0\]: must have at least 1 token id/],
    [{ input: [[1], 'a'] }, /^input\[1\]: must be an array of token ids, like the first element/],
    [
      {
        input: [
          [1, 2],
          [3, '4'],
        ],
      },
      /^input\[1\]\[1\]: must be a token id/,
    ],
    [{ input: [[[1]]] }, /^input\[0\]\[0\]: must be a token id/],
    [{ input: [{}] }, /^input\[0\]\.content: is required and must be an array of parts/],
    [{ input: [{ content: 'a' }] }, /^input\[0\]\.content: is required/],
    [
      { input: [{ content: [{ type: 'text', text: 'a' }] }, 'a'] },
      /^input\[1\]: must be an object with content/,
    ],
    [part([]), /^input\[0\]\.content: must have at least 1 part/],
    [part(many({ type: 'text', text: 'a' }, 257)), /^input\[0\]\.content: must have at most 256 parts/],
    [part([null]), /^input\[0\]\.content\[0\]: must be an object/],
    [part([{ type: 'text' }]), /^input\[0\]\.content\[0\]\.text: must be a non-empty string/],
    [part([{ type: 'image_url', image_url: 'https://x' }]), /^input\[0\]\.content\[0\]\.image_url\.url: /],
    [part([{ type: 'secret-audio' }]), /^input\[0\]\.content\[0\]\.type: must be text or image_url$/],
    [
      { input: many('a', EMBEDDING_INPUTS_MAX + 1) },
      /^input: must have at most 2048 elements: send the rest/,
    ],
    [{ input: 'a', model: '' }, /^model: must be a string of 1 to 1024 characters/],
    [{ input: 'a', model: undefined }, /^model: is required/],
    [{ input: 'a', model: 'gateway/auto' }, /^model: the router auto is not offered/],
    [{ input: 'a', model: 'a/b:online' }, /^model: the variant :online/],
    [{ input: 'a', dimensions: 0 }, /^dimensions: must be an integer from 1 to 16384/],
    [{ input: 'a', dimensions: 1.5 }, /^dimensions: /],
    [{ input: 'a', dimensions: EMBEDDING_DIMENSIONS_MAX + 1 }, /^dimensions: /],
    [{ input: 'a', encoding_format: 'int8' }, /^encoding_format: must be one of float, base64/],
    [{ input: 'a', encoding_format: 'base64_int8' }, /^encoding_format: must be one of float, base64/],
    [{ input: 'a', encoding_format: 'base64_binary' }, /^encoding_format: must be one of float, base64/],
    [{ input: 'a', input_type: 'call 555 1234' }, /^input_type: must be a word, such as query or document/],
    [{ input: 'a', input_type: 5 }, /^input_type: /],
    [{ input: 'a', provider: { only: 'x' } }, /^provider\.only: must be an array/],
    [{ input: 'a', provider: { secret: 'x' } }, /^provider\.secret: is not a known field/],
    [{ input: 'a', user: 'u'.repeat(257) }, /^user: /],
    [{ input: 'a', stream: true }, /^stream: must be false: vectors are returned in one document/],
    [{ input: 'a', models: ['a/b'] }, /^models: must be left out: vectors of different models/],
    [{ messages: [] }, /^messages: is not a field of embeddings: use input/],
    [{ input: 'a', plugins: [] }, /^plugins: is not a field of embeddings/],
    [{ input: 'a', preset: 'x' }, /^preset: a stored preset is not offered/],
    [{ input: 'a', output_dimension: 7 }, /^output_dimension: is not a field of embeddings: use dimensions/],
    [{ input: 'a', output_dtype: 'int8' }, /^output_dtype: must be float/],
    [JSON.parse('{"input":"a","x":{"__proto__":1}}'), /^x\.__proto__: is not an allowed field name/],
  ]
  for (const [body, says] of cases) {
    try {
      parse(body)
      t.fail(`should be refused: ${says.source}`)
    } catch (thrown) {
      t.ok(thrown instanceof GatewayError, says.source)
      const { code, message } = thrown as GatewayError
      t.equal(code, 'invalid_request')
      t.match(message, says)
      t.notMatch(message, /secret-audio|555/)
    }
  }
  for (const body of [null, 7, 'x', [], undefined]) {
    t.throws(() => dialect.parse(body), { code: 'invalid_request', message: /^body: must be an object/ })
  }
})

t.test('the document has each vector at its index, and what it cost', async t => {
  const usage = {
    input_tokens: 3,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: 0,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: 3,
    cost: 0.5,
    is_byok: false,
  }
  const facts = { id: 'gen-1', model: 'acme/x', provider: 'A "b"', usage, metadata: null }
  const document = dialect.document({ ...facts, vectors: ['[0.1]', '"AAAA"'].map(json => Buffer.from(json)) })
  t.same(JSON.parse(String(document)), {
    object: 'list',
    data: [
      { object: 'embedding', index: 0, embedding: [0.1] },
      { object: 'embedding', index: 1, embedding: 'AAAA' },
    ],
    model: 'acme/x',
    id: 'gen-1',
    provider: 'A "b"',
    usage: { prompt_tokens: 3, total_tokens: 3, cost: 0.5, is_byok: false },
  })
  t.same(JSON.parse(String(dialect.document({ ...facts, vectors: [], usage: null }))).usage, null)
})
