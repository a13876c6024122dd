/** The body of a batch, read request by request: every order of its keys, every way to be wrong, every cut. */
import fc from 'fast-check'
import t from 'tap'
import {
  BATCH_START,
  BatchFault,
  type BatchProgress,
  type FoundRequest,
  fileStart,
  modelOf,
} from '../../../src/features/tasks/batches/batch-progress.ts'
import { BatchReader } from '../../../src/features/tasks/batches/batch-reader.ts'
import { search } from '../../support/property.ts'
import { memorySource } from './memory-bytes.ts'

interface Read {
  readonly found: readonly FoundRequest[]
  readonly end: BatchProgress
  /** How often it was stopped. */
  readonly stops: number
}

/** Reads a document, and begins anew after each `pieces` requests. @throws BatchFault */
function read(document: string | Uint8Array, pieces = Number.POSITIVE_INFINITY): Read {
  const source = memorySource(Buffer.from(document))
  const found: FoundRequest[] = []
  let stops = 0
  let progress: BatchProgress = BATCH_START
  for (;;) {
    let left = pieces
    const terms = {
      onRequest: (request: FoundRequest) => void found.push(request),
      isEnough: () => --left <= 0,
    }
    // Through JSON, as between threads.
    progress = JSON.parse(JSON.stringify(new BatchReader(source, progress, terms).read())) as BatchProgress
    if (progress.before === 'end') return { found, end: progress, stops }
    stops++
  }
}

/** The message of the fault; null: there is none. */
function fault(document: string | Uint8Array, pieces?: number): string | null {
  try {
    modelOf(read(document, pieces).end)
    return null
  } catch (thrown) {
    if (thrown instanceof BatchFault) return `${thrown.code} ${thrown.message}`
    throw thrown
  }
}

const REQUESTS = '[{"custom_id":"a","body":{"input":"x"}},\n {"body":{"model":"m"},"custom_id":"b"}]'
const FIELDS: readonly (readonly [name: string, json: string])[] = [
  ['endpoint', '"/v1/responses"'],
  ['model', '"m"'],
  ['completion_window', '"24h"'],
  ['provider', '{"only":["acme"],"allow_fallbacks":false}'],
  ['requests', REQUESTS],
]

function permutations<Item>(items: readonly Item[]): Item[][] {
  if (items.length === 0) return [[]]
  return items.flatMap((item, at) =>
    permutations([...items.slice(0, at), ...items.slice(at + 1)]).map(rest => [item, ...rest]),
  )
}

t.test('the fields may come in any order', async t => {
  for (const fields of permutations(FIELDS)) {
    const document = `{${fields.map(([name, json]) => `${JSON.stringify(name)} : ${json}`).join(',')}}`
    const { found, end } = read(document)
    t.equal(modelOf(end), 'm')
    t.equal(end.requests, 2)
    t.same(end.fields, {
      endpoint: '/v1/responses',
      model: 'm',
      completion_window: '24h',
      provider: { only: ['acme'], allow_fallbacks: false },
    })
    t.same(
      found.map(({ number, customId, from, to }) => [number, customId, document.slice(from, to)]),
      [
        [0, 'a', '{"input":"x"}'],
        [1, 'b', '{"model":"m"}'],
      ],
    )
    t.ok(document.slice(end.firstRequest?.offset).startsWith('{"custom_id":"a"'))
  }
})

const batch = (requests: string, more = ',"model":"m"') =>
  `{"endpoint":"/v1/responses"${more},"requests":${requests}}`
const request = (body: string, id = '"a"') => `[{"custom_id":${id},"body":${body}}]`

t.test('what is wrong is named by its path, and nothing of it is told', async t => {
  const cases: readonly (readonly [name: string, document: string | Uint8Array, message: RegExp | null])[] = [
    ['nothing', '', /^invalid_request The request body is empty$/],
    ['white space', ' \n ', /The request body is empty/],
    ['a byte order mark alone', '\ufeff', /The request body is empty/],
    ['a byte order mark before', `\ufeff${batch(request('{}'))}`, null],
    ['two byte order marks', `\ufeff\ufeff${batch(request('{}'))}`, /body: is not valid JSON/],
    ['a list', '[]', /body: must be an object/],
    ['a number', '1', /body: must be an object/],
    ['a word', 'secret', /body: is not valid JSON \(line 1, byte 0\)/],
    ['bytes that are no UTF-8', Buffer.from([0x7b, 0xff]), /The request body is not valid UTF-8/],
    ['no fields', '{}', /model: is required/],
    [
      'more after the end',
      `${batch(request('{}'))} {}`,
      /body: must end after the object \(line 1, byte \d+\)/,
    ],
    ['another batch after the end', `${batch(request('{}'))}\n${batch(request('{}'))}`, /body: must end/],
    ['no requests', '{"endpoint":"/v1/responses","model":"m"}', null],
    [
      'an unknown field',
      batch('[]', ',"secret":1'),
      /^invalid_request secret: is not a known field; the known ones are/,
    ],
    [
      'an unknown field of an odd name',
      batch('[]', ',"sk-secret key":1'),
      /^invalid_request \*: is not a known/,
    ],
    [
      'a field of a very long name',
      batch('[]', `,"${'x'.repeat(5000)}":1`),
      /body: must not have a field with such a long/,
    ],
    [
      'a prototype',
      batch('[]', ',"__proto__":{}'),
      /\*: is not a known field|__proto__: is not a known field/,
    ],
    [
      'a callback',
      batch('[]', ',"callback_url":"https://secret"'),
      /callback_url: is not offered .*GET \/v1\/batches/,
    ],
    ['no callback', batch(request('{}'), ',"callback_url":null,"model":"m"'), null],
    ['a file without a name', batch('[]', ',"input_file_id":""'), /input_file_id: must /],
    [
      'results that expire',
      batch('[]', ',"output_expires_after":{"secret":1}'),
      /output_expires_after: .*delete/,
    ],
    ['another endpoint', '{"endpoint":"/v1/secret"}', /endpoint: must be one of \/v1\/responses, /],
    ['another window', '{"completion_window":"1h"}', /completion_window: must be 24h or null/],
    ['no window', batch(request('{}'), ',"completion_window":null,"model":"m"'), null],
    ['a model that is no text', '{"model":5}', /model: must be null or a string/],
    ['a model that is too long', `{"model":"${'m'.repeat(1025)}"}`, /model: must be a string of 1 to 1024/],
    [
      'a field that is far too long',
      `{"model":"${'m'.repeat(70_000)}"}`,
      /model: must have at most 65536 bytes/,
    ],
    ['a provider that is no object', '{"provider":[]}', /provider: must be an object/],
    ['an unknown preference', '{"provider":{"order":["a"]}}', /provider.order: is not a known field/],
    ['providers that are no list', '{"provider":{"only":"a"}}', /provider.only: must be an array/],
    ['a provider that is no text', '{"provider":{"only":[1]}}', /provider.only\[0\]: must be a string/],
    ['a field twice', '{"model":"m","model":"m"}', /model: must not be given twice/],
    ['requests twice', `{"requests":${REQUESTS},"requests":[]}`, /requests: must not be given twice/],
    ['requests that are an object', batch('{}'), /requests: must be an array/],
    ['requests that are null', batch('null'), /requests: must be an array/],
    ['empty requests', batch('[]'), /requests: must have at least 1 element/],
    ['a request that is no object', batch('[1]'), /requests\[0\]: must be an object/],
    [
      'a request that is a list',
      batch(`[${request('{}').slice(1, -1)},[]]`),
      /requests\[1\]: must be an object/,
    ],
    [
      'an empty request',
      batch('[{}]'),
      /requests\[0\].custom_id: is required and must be a string of 1 to 500/,
    ],
    ['no custom_id', batch('[{"body":{}}]'), /requests\[0\].custom_id: is required/],
    ['custom_id null', batch(request('{}', 'null')), /requests\[0\].custom_id: must be a string/],
    ['custom_id a number', batch(request('{}', '7')), /requests\[0\].custom_id: must be a string/],
    ['custom_id empty', batch(request('{}', '""')), /requests\[0\].custom_id: must be a string of 1 to 500/],
    ['custom_id of 500 characters', batch(request('{}', `"${'😀'.repeat(500)}"`)), null],
    ['the same with escapes', batch(request('{}', `"${'\\ud83d\\ude00'.repeat(500)}"`)), null],
    [
      'custom_id of 501 characters',
      batch(request('{}', `"${'a'.repeat(501)}"`)),
      /custom_id: must be a string of 1/,
    ],
    [
      'custom_id of a megabyte',
      batch(request('{}', `"${'a'.repeat(1e6)}"`)),
      /requests\[0\].custom_id: must be/,
    ],
    ['custom_id with NUL', batch(request('{}', '"a\\u0000"')), /requests\[0\].custom_id: must be/],
    [
      'custom_id with half a character',
      batch(request('{}', '"\\ud800"')),
      /requests\[0\].custom_id: must be/,
    ],
    [
      'custom_id twice',
      batch('[{"custom_id":"a","custom_id":"a","body":{}}]'),
      /custom_id: must not be given twice/,
    ],
    ['no body', batch('[{"custom_id":"a"}]'), /requests\[0\].body: is required and must be an object/],
    ['body null', batch(request('null')), /requests\[0\].body: must be an object/],
    ['body a list', batch(request('[]')), /requests\[0\].body: must be an object/],
    ['body a text', batch(request('"secret"')), /requests\[0\].body: must be an object/],
    [
      'body twice',
      batch('[{"custom_id":"a","body":{},"body":{}}]'),
      /requests\[0\].body: must not be given twice/,
    ],
    [
      'a field of a request',
      batch('[{"custom_id":"a","method":"POST","body":{}}]'),
      /requests\[0\].method: is not a/,
    ],
    [
      'a fault far down',
      batch(`[${'{"custom_id":"a","body":{}},\n'.repeat(50)}{"custom_id":"b","body":{"x":secret}}]`),
      /requests\[50\].body: is not valid JSON \(line 51, byte \d+\)/,
    ],
    [
      'a comma too many',
      batch('[{"custom_id":"a","body":{}},]'),
      /requests\[1\]: is not valid JSON|must be an object/,
    ],
    [
      'a comma too few',
      batch('[{"custom_id":"a","body":{}} {"custom_id":"b","body":{}}]'),
      /requests: is not valid/,
    ],
    [
      'no model anywhere',
      batch(request('{}'), ''),
      /^invalid_request model: is required: name it here, or in/,
    ],
    ['model null', batch(request('{}'), ',"model":null'), /model: is required/],
    ['a model in the bodies alone', batch(request('{"model":"m"}'), ''), null],
    ['the model of a nested object', batch(request('{"metadata":{"model":"other"}}')), null],
    ['a model with escapes', batch(request('{"mod\\u0065l":"\\u006d"}')), null],
    [
      'a model by an escaped name',
      batch(request('{"mod\\u0065l":"other"}')),
      /^unprocessable requests\[0\].body.model/,
    ],
    ['two models in one body', batch(request('{"model":"other","model":"m"}')), null],
    ['a model that is no text is left to the check of bodies', batch(request('{"model":7}')), null],
    ['a model null', batch(request('{"model":null}')), null],
    [
      'a body without the model',
      batch(`[${request('{"model":"m"}').slice(1, -1)},${request('{}', '"b"').slice(1, -1)}]`, ''),
      /^invalid_request requests\[1\].body.model: is required, because the batch itself names no model/,
    ],
    [
      'two models',
      batch(`[${request('{"model":"m"}').slice(1, -1)},${request('{"model":"n"}', '"b"').slice(1, -1)}]`, ''),
      /^unprocessable requests\[1\].body.model: must be the same in the whole batch/,
    ],
    ['a model other than above', batch(request('{"model":"n"}')), /^unprocessable requests\[0\].body.model/],
    [
      'a model other than below',
      `{"requests":${request('{"model":"n"}')},"model":"m"}`,
      /^unprocessable requests\[0\]/,
    ],
    [
      'a model too long in a body',
      batch(request(`{"model":"${'m'.repeat(1025)}"}`)),
      /requests\[0\].body.model: must/,
    ],
  ]
  for (const [name, document, message] of cases) {
    for (const pieces of [1, undefined]) {
      const told = fault(document, pieces)
      if (message === null) t.equal(told, null, name)
      else t.match(told, message, name)
      t.notMatch(told ?? '', /sk-|https:|: secret|"secret"/, name)
    }
  }
})

t.test('lines of a file and params of messages are read as requests, stopped at any of them', t => {
  const line = (id: string, more: object = {}) =>
    JSON.stringify({ custom_id: id, method: 'POST', url: '/v1/responses', body: { model: 'm' }, ...more })
  const cases = [
    {
      start: fileStart({ endpoint: '/v1/responses' }),
      text: `\ufeff${line('a')}\r\n\n${line('b')}${line('c')}\n`,
    },
    {
      start: { ...BATCH_START, form: 'params' as const },
      text: `{"requests":[${['a', 'b', 'c'].map(id => `{"custom_id":"${id}","params":{"model":"m"}}`).join()}]}`,
    },
  ]
  for (const { start, text } of cases) {
    const source = memorySource(Buffer.from(text))
    for (const isEnough of [() => true, () => false]) {
      const ids: string[] = []
      let progress = start
      while (progress.before !== 'end') {
        const terms = {
          onRequest: ({ customId, from, to }: FoundRequest) => {
            ids.push(customId)
            t.equal(Buffer.from(text).subarray(from, to).toString(), '{"model":"m"}')
          },
          isEnough,
        }
        progress = structuredClone(new BatchReader(source, progress, terms).read())
      }
      t.same([ids, progress.requests, modelOf(progress)], [['a', 'b', 'c'], 3, 'm'])
    }
  }
  t.end()
})

t.test('faults of the bytes of a file name the file', t => {
  const readFile = (bytes: Uint8Array) => () =>
    new BatchReader(memorySource(Buffer.from(bytes)), fileStart({ endpoint: '/v1/responses' }), {
      onRequest: () => undefined,
      isEnough: () => false,
    }).read()
  t.throws(readFile(Buffer.from([0x7b, 0xff])), { message: 'input_file_id: the file is not valid UTF-8' })
  t.throws(readFile(Buffer.from('{')), {
    message: /^input_file_id: line 1: is not valid JSON: the file ends too early/,
  })
  t.end()
})

t.test('a body that ends early is refused, wherever it ends', async t => {
  const document = Buffer.from(batch(REQUESTS, ',"model":"m","provider":{"only":["é"]}'))
  for (let length = 0; length < document.length; length++) {
    const told = fault(document.subarray(0, length))
    if (!/empty|too early|UTF-8/.test(told ?? '')) t.fail(`${length}: ${told}`)
  }
  t.equal(fault(document), null)
})

t.test('stopping after any number of requests changes nothing', async t => {
  await fc.assert(
    fc.asyncProperty(
      fc.uniqueArray(fc.string({ minLength: 1, maxLength: 20, unit: 'grapheme' }), {
        minLength: 1,
        maxLength: 30,
      }),
      fc.array(fc.json({ maxDepth: 3 }), { minLength: 30, maxLength: 30 }),
      fc.integer({ min: 1, max: 31 }),
      fc.constantFrom('', ' ', '\n', '\r\n\t'),
      async (ids, values, pieces, space) => {
        const bodies = ids.map((_, at) => `{"input":${space}${values[at]},"n":1e3}`)
        const requests = ids.map(
          (id, at) => `{${space}"body":${bodies[at]},"custom_id":${JSON.stringify(id)}}`,
        )
        const document = batch(`[${space}${requests.join(`,${space}`)}${space}]`)
        const bytes = Buffer.from(document)
        const whole = read(document)
        const pieced = read(document, pieces)
        t.same(pieced.found, whole.found)
        t.same({ ...pieced.end }, { ...whole.end })
        t.same(
          whole.found.map(({ number, customId, from, to }) => [
            number,
            customId,
            bytes.toString('utf8', from, to),
          ]),
          ids.map((id, at) => [at, id, bodies[at]]),
        )
        t.equal(pieced.stops, Math.floor((ids.length - 1) / pieces))
      },
    ),
    search(100),
  )
})
