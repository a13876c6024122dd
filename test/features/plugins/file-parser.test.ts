/** What becomes of a document when the pool cannot read it; the rest is in test/contract. */
import { createHash } from 'node:crypto'
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { createFileParser, type FileParserDeps } from '../../../src/features/plugins/file-parser.ts'
import { TaskError } from '../../../src/features/tasks/task.ts'
import type { InputItem } from '../../../src/protocol/items.ts'
import { scriptedEndpoint, scriptedExchange } from '../../support/scripted-attempt.ts'

type Run = FileParserDeps['tasks']['run']
const part = (text: string) => ({
  type: 'input_file' as const,
  file_data: `data:application/pdf;base64,${Buffer.from(text).toString('base64')}`,
})

const hasRoom = () => undefined

async function parse(
  run: Run,
  parts = [part('one')],
  deps: Partial<FileParserDeps> = {},
  before: readonly InputItem[] = [],
) {
  const scripted = scriptedExchange()
  const request = { ...scripted.request, input: [...before, { role: 'user' as const, content: parts }] }
  const exchange = { ...scripted, request, prompt: request }
  const plugin = createFileParser({
    tasks: { run, checkRoom: hasRoom },
    config: { files: { pdf: { timeoutMs: 5_000 } } },
    fetchPage: null,
    ocr: null,
    modelFacts: { takesFiles: () => false, takesImages: () => false },
    filesByLink: () => false,
    policyAgainst: () => null,
    ...deps,
  }).activate({ id: 'file-parser' }, request)
  const fit = async () => await plugin?.fitTo?.(exchange, scriptedEndpoint('openai-chat'))
  try {
    await fit()
    // As for the next candidate.
    return { error: null, prompt: (await fit()) ?? exchange.prompt }
  } catch (error) {
    return { error, prompt: exchange.prompt }
  }
}

t.test('each way in which the pool fails has its own answer', async t => {
  const answers: readonly (readonly [TaskError, string, RegExp])[] = [
    [
      new TaskError('timeout'),
      'invalid_request',
      /^input\[0\]\.content\[0\]\.file_data: .* too long to read$/,
    ],
    [new TaskError('crashed'), 'invalid_request', /the document cannot be read$/],
    [new TaskError('overloaded'), 'service_unavailable', /too many documents/],
    [new TaskError('overloaded', null, true), 'rate_limit_exceeded', /too many of this API key's documents/],
    [
      new TaskError('failed', { code: 'encrypted', message: 'is encrypted' }),
      'invalid_request',
      /: is encrypted$/,
    ],
    [
      new TaskError('failed', { code: 'internal', message: 'TypeError' }),
      'invalid_request',
      /cannot be read$/,
    ],
  ]
  for (const [thrown, code, message] of answers) {
    const { error } = await parse(() => Promise.reject(thrown))
    t.ok(error instanceof GatewayError)
    t.match(error, { code, message })
  }
})

t.test('a document of a key whose documents leave no room is refused before it is fetched', async t => {
  let fetched = 0
  const run = (async () => ({ pages: ['text'] })) as unknown as Run
  const keys: string[] = []
  const full = (name: string, key: string) => {
    keys.push(`${name} ${key}`)
    throw new TaskError('overloaded', null, true)
  }
  const fetchPage = async () => {
    fetched++
    return { url: '', type: 'application/pdf', charset: null, bytes: Buffer.from('%PDF-') }
  }
  const link = { type: 'input_file' as const, file_data: 'https://example.com/a.pdf' }
  const refused = await parse(run, [link], { tasks: { run, checkRoom: full }, fetchPage })
  t.match(refused.error, { code: 'rate_limit_exceeded', message: /too many of this API key's documents/ })
  t.equal(fetched, 0)
  t.same(keys, [`pdf-text ${scriptedExchange().caller.keyHash}`])
  await parse(run, [link], { fetchPage })
  t.equal(fetched, 1, 'where there is room')
})

t.test('a document whose text came along needs no room', async t => {
  const hash = createHash('sha256').update('one').digest('hex')
  const annotation = {
    type: 'file' as const,
    file: { hash, content: [{ type: 'text' as const, text: 'its text' }] },
  }
  const answer = {
    type: 'message',
    role: 'assistant',
    content: [{ type: 'output_text', text: '', annotations: [annotation] }],
  }
  const none = () => {
    throw new TaskError('overloaded', null, true)
  }
  const run: Run = () => Promise.reject(new Error('it is not read again'))
  const { error, prompt } = await parse(run, [part('one')], { tasks: { run, checkRoom: none } }, [
    answer as InputItem,
  ])
  t.equal(error, null)
  t.match(prompt.input, [{}, { content: [{ text: 'its text' }] }])
})

t.test('each document is read once, however often it is there and whoever is asked next', async t => {
  let reads = 0
  const run: Run = (async () => {
    reads++
    return { pages: [`text ${reads}`] }
  }) as unknown as Run
  const { prompt } = await parse(run, [part('one'), part('two'), part('one')])
  t.equal(reads, 2)
  t.match(prompt.input, [{ content: [{ text: 'text 1' }, { text: 'text 2' }, { text: 'text 1' }] }])
})

t.test('more text than any model reads is refused', async t => {
  const run = (async () => ({ pages: ['x'.repeat(5 * 1024 * 1024)] })) as unknown as Run
  const { error } = await parse(run, [part('one'), part('two')])
  t.match(error, {
    code: 'invalid_request',
    message: /^input\[0\]\.content\[1\]\.file_data: .* too much text in total$/,
  })
})

t.test('an OCR provider gets no document that is larger than may be read here', async t => {
  let asked = 0
  const recognized = async (bytes: Buffer, pages: number) => {
    const file_data = `data:application/pdf;base64,${bytes.toString('base64')}`
    const scripted = scriptedExchange()
    const input = [{ role: 'user' as const, content: [{ type: 'input_file' as const, file_data }] }]
    const request = { ...scripted.request, input }
    const exchange = { ...scripted, request, prompt: request }
    const plugin = createFileParser({
      tasks: { run: () => Promise.reject(new Error('it is not read here')), checkRoom: hasRoom },
      config: { files: { pdf: { timeoutMs: 5_000 } } },
      fetchPage: null,
      ocr: async () => {
        asked++
        return Array.from({ length: pages }, () => ({ markdown: 'text', images: [] }))
      },
      modelFacts: { takesFiles: () => false, takesImages: () => false },
      filesByLink: () => false,
      policyAgainst: () => null,
    }).activate({ id: 'file-parser', pdf: { engine: 'mistral-ocr' } }, request)
    await plugin?.fitTo?.(exchange, scriptedEndpoint('openai-chat'))
  }
  const path = 'input[0].content[0].file_data'
  const large = Buffer.alloc(50 * 1024 * 1024 + 1)
  large.write('%PDF-')
  await t.rejects(recognized(large, 1), {
    code: 'invalid_request',
    message: `${path}: the document is larger than 50 MiB`,
  })
  t.equal(asked, 0)
  await recognized(large.subarray(0, -1), 2_000)
  t.equal(asked, 1, 'as large as may be')
  await t.rejects(recognized(Buffer.from('%PDF-'), 2_001), {
    code: 'invalid_request',
    message: `${path}: the document has more than 2,000 pages`,
  })
})
