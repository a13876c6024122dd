/** Documents over real HTTP: where they come from, what reads them, and where what was read goes. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { deflateSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { loadConfig } from '../../src/process/config/config.ts'
import type { Config } from '../../src/process/config/settings.ts'
import { buildCatalog } from '../../src/process/wiring/catalog.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { OutputItem } from '../../src/protocol/items.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream, startGateway, type TestGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'
import { writePdf } from '../support/pdf.ts'
import { ScriptedProvider } from '../support/provider.ts'
import { MODEL, startAligned } from '../support/world.ts'

type Links = Config['files']['links']
type Answer = (request: IncomingMessage, response: ServerResponse, body: string) => void

/** A server whose answers the test decides, path by path. */
interface Shelf {
  readonly url: string
  readonly asked: {
    readonly path: string
    readonly headers: IncomingMessage['headers']
    readonly body: string
  }[]
  readonly answers: Map<string, Answer>
}

interface World {
  readonly gateway: TestGateway
  readonly provider: ScriptedProvider
  readonly shelf: Shelf
}

const OCR_KEY = 'ocr-secret-0123456789'
const WITH_METADATA = { headers: { 'x-gateway-metadata': 'enabled' } }
const DEFAULTS = loadConfig([], {}).files

async function openShelf(t: Test): Promise<Shelf> {
  const shelf: Shelf = { url: '', asked: [], answers: new Map() }
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request.setEncoding('utf8')) body += String(chunk)
    const path = request.url ?? ''
    shelf.asked.push({ path, headers: request.headers, body })
    const answer = shelf.answers.get(path)
    if (answer === undefined) response.writeHead(404).end()
    else answer(request, response, body)
  })
  const { url } = await listening(server, t)
  return { ...shelf, url }
}

async function start(t: Test, links: Partial<Links> = { allowPrivate: true }, ocr = false): Promise<World> {
  const provider = new ScriptedProvider()
  const baseUrl = await provider.listen()
  const shelf = await openShelf(t)
  const model = (name: string, inputModalities: string[], slug = 'acme') => ({
    id: `acme/${name}`,
    name,
    inputModalities,
    endpoints: [{ provider: slug, upstreamModel: name }],
  })
  const gateway = await startGateway({
    files: {
      ...DEFAULTS,
      // A busy machine may take longer than an operator would wait.
      pdf: { timeoutMs: 60_000 },
      links: { ...DEFAULTS.links, ...links },
      ocr: ocr ? { provider: 'scans', model: 'ocr-1', timeoutMs: 10_000 } : null,
    },
    providers: [
      { slug: 'acme', name: 'Acme', format: 'openai-chat', baseUrl, apiKey: 'x' },
      {
        slug: 'scans',
        name: 'Scans',
        baseUrl: `${shelf.url}/v1`,
        apiKey: OCR_KEY,
        format: 'openai-responses',
      },
    ],
    models: [
      model('model', ['text']),
      model('spare', ['text']),
      model('seeing', ['text', 'image']),
      model('reader', ['text', 'file']),
      model('linking', ['text', 'file'], 'scans'),
    ],
  })
  t.teardown(async () => {
    await gateway.close()
    await provider.close()
  })
  return { gateway, provider, shelf }
}

interface Told {
  readonly status: number
  readonly body: ResponseResource & {
    readonly error: { readonly message: string; readonly metadata: Readonly<Record<string, unknown>> } | null
  }
}

async function ask({ gateway }: World, body: object): Promise<Told> {
  const answer = await gateway.respond(body, WITH_METADATA)
  return { status: answer.status, body: (await answer.json()) as Told['body'] }
}

async function stream({ gateway }: World, body: object): Promise<StreamEvent[]> {
  const answer = await gateway.respond({ ...body, stream: true }, WITH_METADATA)
  return parseEventStream(await answer.text())
}

const stagesOf = ({ body }: Told) => body.gateway_metadata?.pipeline ?? []
const said = (body: unknown) => JSON.stringify(body)

function annotationsOf(output: readonly OutputItem[]) {
  return output.flatMap(item =>
    item.type === 'message' && Array.isArray(item.content)
      ? item.content.flatMap(part => (part.type === 'output_text' ? part.annotations : []))
      : [],
  )
}

const dataUrl = (bytes: Uint8Array) => `data:application/pdf;base64,${Buffer.from(bytes).toString('base64')}`
const BYTES = writePdf({ pages: ['The code is heron', 'Second page'] })
const PDF = { type: 'input_file', filename: 'code.pdf', file_data: dataUrl(BYTES) }
const BROKEN = { type: 'input_file', file_data: dataUrl(Buffer.from('hello')) }
const user = (...content: object[]) => ({
  type: 'message',
  role: 'user',
  content: [{ type: 'input_text', text: 'What is the code?' }, ...content],
})
const PARSE = { plugins: [{ id: 'file-parser' }] }
const withEngine = (engine: string) => ({ plugins: [{ id: 'file-parser', pdf: { engine } }] })
const linkTo = ({ shelf }: World, path = '/code.pdf') => ({
  type: 'input_file',
  filename: 'code.pdf',
  file_url: shelf.url + path,
})
const pdfOf =
  (bytes: Uint8Array): Answer =>
  (_request, response) =>
    response.writeHead(200, { 'content-type': 'application/pdf' }).end(bytes)
const READ = {
  type: 'file',
  file: {
    hash: /^[0-9a-f]{64}$/,
    name: 'code.pdf',
    content: [{ type: 'text', text: 'The code is heron' }, { text: 'Second page' }],
  },
}

t.test('a link to a PDF is followed, without anything of the caller’s or ours', async t => {
  const world = await start(t)
  world.shelf.answers.set('/code.pdf', pdfOf(BYTES))
  world.provider.script('model', [{ text: 'heron' }])
  const told = await ask(world, { model: 'acme/model', input: [user(linkTo(world))], ...PARSE })
  t.equal(told.status, 200)
  t.match(said(world.provider.asked[0]?.body), 'The code is heron')
  t.match(stagesOf(told), [{ name: 'file-parser', data: { engine: 'pdf-text', pages: 2 } }])
  t.match(annotationsOf(told.body.output), [READ])
  t.equal(world.shelf.asked.length, 1)
  t.same(Object.keys(world.shelf.asked[0]?.headers ?? {}).sort(), [
    'accept',
    'accept-encoding',
    'connection',
    'host',
    'user-agent',
  ])
})

t.test('as it comes, the gateway follows no link into its own network', async t => {
  const world = await start(t, {})
  world.shelf.answers.set('/code.pdf', pdfOf(BYTES))
  const port = new URL(world.shelf.url).port
  for (const file_url of [
    `${world.shelf.url}/code.pdf`,
    `https://127.0.0.1:${port}/code.pdf`,
    'https://127.0.0.1/code.pdf',
    'https://2130706433/code.pdf',
    'https://[::ffff:127.0.0.1]/code.pdf',
    'https://localhost/code.pdf',
    'http://169.254.169.254/latest/meta-data/',
    'file:///etc/passwd',
  ]) {
    const input = [user({ type: 'input_file', file_url })]
    const told = await ask(world, { model: 'acme/model', input, ...PARSE })
    t.equal(told.status, 400, file_url)
    t.match(told.body.error?.message, /^input\[0\]\.content\[1\]\.file_url: the link /, file_url)
    t.notMatch(told.body.error?.message, file_url)
  }
  t.equal(world.shelf.asked.length, 0)
  t.equal(world.provider.asked.length, 0)
})

t.test('links that lead to no document are refused by their field', async t => {
  const world = await start(t, { allowPrivate: true, maxBytes: 10_000 })
  world.shelf.answers.set('/large', pdfOf(Buffer.alloc(10_001)))
  world.shelf.answers.set('/page', (_, response) =>
    response.writeHead(200, { 'content-type': 'text/html' }).end('<p>'),
  )
  world.shelf.answers.set('/false', pdfOf(Buffer.from('hello')))
  world.shelf.answers.set('/away', (_, response) =>
    response.writeHead(302, { location: 'file:///etc/passwd' }).end(),
  )
  const cases: readonly (readonly [string, RegExp])[] = [
    ['/missing', /: the link answered with status 404$/],
    ['/large', /: the link answered with more than 10000 bytes$/],
    ['/page', /: the link does not point to a document of type application\/pdf$/],
    ['/false', /: the document is not a PDF$/],
    ['/away', /: the link does not begin with https:\/\/$/],
  ]
  for (const [path, why] of cases) {
    const told = await ask(world, { model: 'acme/model', input: [user(linkTo(world, path))], ...PARSE })
    t.equal(told.status, 400, path)
    t.match(told.body.error?.message, why)
    t.match(told.body.error?.message, /^input\[0\]\.content\[1\]\.file_url: /)
  }
  const closed = await start(t, { enabled: false, allowPrivate: true })
  const told = await ask(closed, { model: 'acme/model', input: [user(linkTo(closed))], ...PARSE })
  t.match(told.body.error?.message, /file_url: links are disabled/)
  t.equal(closed.shelf.asked.length, 0)
})

t.test('an id of a stored file is refused by its field, unless the model gets the file as it is', async t => {
  const world = await start(t)
  const input = [user({ type: 'input_file', file_id: 'file-1' })]
  const told = await ask(world, { model: 'acme/model', input, ...PARSE })
  t.equal(told.status, 400)
  t.match(told.body.error?.message, /^input\[0\]\.content\[1\]\.file_id: stored files are not supported/)
  t.equal(world.provider.asked.length, 0)
  world.provider.script('reader', [{ text: 'ok' }])
  t.equal((await ask(world, { model: 'acme/reader', input, ...PARSE })).status, 200)
  t.match(said(world.provider.asked[0]?.body), 'file-1')
})

t.test('a model that reads files gets a link as its format has it', async t => {
  const world = await start(t)
  world.shelf.answers.set('/code.pdf', pdfOf(BYTES))
  world.provider.script('reader', [{ text: 'heron' }])
  const input = [user(linkTo(world))]
  await ask(world, { model: 'acme/reader', input, ...withEngine('native') })
  t.match(said(world.provider.asked[0]?.body), dataUrl(BYTES), 'Chat Completions knows no links')
  t.equal(world.shelf.asked.length, 1)
  await ask(world, { model: 'acme/linking', input, ...withEngine('native') })
  t.equal(world.shelf.asked.at(-1)?.path, '/v1/responses')
  t.match(world.shelf.asked.at(-1)?.body, `${world.shelf.url}/code.pdf`)
  t.equal(world.shelf.asked.length, 2, 'the provider follows it, or does not')
})

t.test('what was read goes with the first text of a stream, and is spared when it comes back', async t => {
  const world = await start(t)
  world.shelf.answers.set('/code.pdf', pdfOf(BYTES))
  world.provider.script('model', [
    { reasoning: 'let me see', text: 'It is the heron of course' },
    { text: 'Yes' },
  ])
  const input = [user(PDF)]
  const events = await stream(world, { model: 'acme/model', input, ...PARSE })
  t.same(grammarViolations(events), [])
  const added = events.filter(({ type }) => type === 'response.output_text.annotation.added')
  t.match(added, [{ annotation_index: 0, content_index: 0, annotation: READ }])
  const types = events.map(({ type }) => type)
  t.ok(types.indexOf('response.output_text.annotation.added') < types.indexOf('response.output_text.done'))
  const last = events.at(-1)
  if (last?.type !== 'response.completed') throw new Error('the stream has not ended well')
  t.match(annotationsOf(last.response.output), [READ])
  t.equal(annotationsOf(last.response.output).length, 1)

  const again = [...input, ...last.response.output, user(linkTo(world))]
  const second = await ask(world, { model: 'acme/model', input: again, ...PARSE })
  t.equal(second.status, 200)
  t.same(stagesOf(second), [], 'nothing was read again, by whatever way it came')
  t.same(annotationsOf(second.body.output), [])
  const sent = said(world.provider.asked[1]?.body)
  t.equal(sent.split('The code is heron').length, 3, 'the model has it in both places, and no annotation')
})

t.test('a relayed stream has the annotation as well', async t => {
  const world = await start(t)
  const words = 'heron '.repeat(200)
  const pages = writePdf({ pages: [words] })
  const input = [user({ type: 'input_file', file_data: dataUrl(pages) })]
  const events = await stream(world, { model: 'sim/echo', input, ...PARSE })
  t.same(grammarViolations(events), [])
  t.ok(events.filter(({ type }) => type === 'response.output_text.delta').length > 3)
  const last = events.at(-1)
  if (last?.type !== 'response.completed') throw new Error('the stream has not ended well')
  t.match(annotationsOf(last.response.output), [{ type: 'file' }])
})

t.test('whoever takes over has the annotation once', async t => {
  const world = await start(t)
  world.provider.script('model', [{ status: 500 }])
  world.provider.script('spare', [{ text: 'heron' }])
  const models = ['acme/model', 'acme/spare']
  const told = await ask(world, { models, input: [user(PDF)], ...PARSE })
  t.equal(told.status, 200)
  t.match(annotationsOf(told.body.output), [READ])
  t.equal(annotationsOf(told.body.output).length, 1)
  t.equal(stagesOf(told).length, 1)
})

t.test('an error after a document was read has what was read', async t => {
  const world = await start(t)
  const asking = { model: 'acme/model', ...PARSE }
  world.provider.script('model', [{ status: 502 }])
  const failed = await ask(world, { ...asking, input: [user(PDF)] })
  t.equal(failed.status, 502)
  t.match(failed.body.error?.metadata['file_annotations'], [READ])

  const events = await stream(world, { ...asking, model: 'sim/fail-cut-end', input: [user(PDF)] })
  t.same(grammarViolations(events), [])
  const last = events.at(-1)
  if (last?.type !== 'response.failed') throw new Error('the stream has not failed')
  t.match(last.response.error?.metadata?.['file_annotations'], [READ])

  const second = await ask(world, { ...asking, input: [user(PDF, BROKEN)] })
  t.equal(second.status, 400)
  t.match(second.body.error?.message, /^input\[0\]\.content\[2\]\.file_data: /)
  t.match(second.body.error?.metadata['file_annotations'], [READ])

  const nothing = await ask(world, { ...asking, input: [user(BROKEN)] })
  t.notOk('file_annotations' in (nothing.body.error?.metadata ?? {}))

  const annotations = second.body.error?.metadata['file_annotations']
  const back = { type: 'message', role: 'assistant', id: 'msg_1', status: 'completed' }
  const content = [{ type: 'output_text', text: '', annotations }]
  world.provider.script('model', [{ text: 'heron' }])
  const retried = await ask(world, { ...asking, input: [{ ...back, content }, user(PDF)] })
  t.equal(retried.status, 200)
  t.same(stagesOf(retried), [], 'what the error brought spares the reading too')
})

t.test('a PDF that unfolds without end is refused, and the next one is read', async t => {
  const world = await start(t)
  const bomb = writePdf({
    pages: ['one'],
    stream: {
      dictionary: '/Filter /FlateDecode',
      bytes: deflateSync(Buffer.alloc(128 * 1024 * 1024, 0x20), { level: 1 }),
    },
  })
  world.shelf.answers.set('/bomb.pdf', pdfOf(bomb))
  const input = [user(linkTo(world, '/bomb.pdf'))]
  const told = await ask(world, { model: 'acme/model', input, ...PARSE })
  t.equal(told.status, 400)
  t.match(
    told.body.error?.message,
    /^input\[0\]\.content\[1\]\.file_url: the document (expands to too many bytes|took too long to read)$/,
  )
  world.provider.script('model', [{ text: 'heron' }])
  t.equal((await ask(world, { model: 'acme/model', input: [user(PDF)], ...PARSE })).status, 200)
})

const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
const recognized =
  (...pages: object[]): Answer =>
  (_request, response) =>
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ pages }))

t.test('an OCR provider reads documents for models that read none, where one is configured', async t => {
  const world = await start(t, {}, true)
  const image = { id: 'img-0.jpeg', image_base64: PIXEL }
  const png = { id: 'img-1.png', image_base64: `data:image/png;base64,${PIXEL}` }
  world.shelf.answers.set(
    '/v1/ocr',
    recognized(
      { index: 0, markdown: '# The code is heron', images: [image, png] },
      { index: 1, markdown: 'Second page', images: Array(9).fill(image) },
      { index: 2, markdown: '', images: [{ image_base64: 'javascript:alert(1)' }, null] },
    ),
  )
  world.provider.script('model', [{ text: 'heron' }])
  world.provider.script('seeing', [{ text: 'heron' }])
  const told = await ask(world, { model: 'acme/model', input: [user(PDF)], ...PARSE })
  t.equal(told.status, 200)
  t.equal(world.shelf.asked[0]?.headers.authorization, `Bearer ${OCR_KEY}`)
  t.same(JSON.parse(world.shelf.asked[0]?.body ?? ''), {
    model: 'ocr-1',
    document: { type: 'document_url', document_url: PDF.file_data },
    include_image_base64: true,
    image_limit: 8,
  })
  t.match(stagesOf(told), [{ name: 'file-parser', data: { engine: 'mistral-ocr', pages: 3 } }])
  const [note] = annotationsOf(told.body.output)
  if (note?.type !== 'file') throw new Error('there is no annotation')
  t.match(note.file.content.slice(0, 4), [
    { type: 'text', text: '# The code is heron' },
    { type: 'image_url', image_url: { url: `data:image/jpeg;base64,${PIXEL}` } },
    { type: 'image_url', image_url: { url: `data:image/png;base64,${PIXEL}` } },
    { type: 'text', text: 'Second page' },
  ])
  t.equal(note.file.content.filter(({ type }) => type === 'image_url').length, 8)
  t.notMatch(said(world.provider.asked[0]?.body), PIXEL, 'a model that does not see gets no pictures')

  const input = [user(PDF), ...told.body.output, user(PDF)]
  const second = await ask(world, { model: 'acme/seeing', input, ...withEngine('mistral-ocr') })
  t.equal(second.status, 200)
  t.same(stagesOf(second), [])
  t.match(said(world.provider.asked[1]?.body), PIXEL)
  t.equal(world.shelf.asked.length, 1, 'it was not asked again')
})

t.test('what the OCR provider gets wrong is told in our words', async t => {
  const world = await start(t, {}, true)
  const failing =
    (status: number): Answer =>
    (request, response) =>
      response.writeHead(status).end(`no ${request.headers.authorization} ${OCR_KEY}`)
  const cases: readonly (readonly [Answer, number, RegExp])[] = [
    [failing(400), 400, /^input\[0\]\.content\[1\]\.file_data: the OCR provider cannot read the document$/],
    [failing(422), 400, /cannot read the document$/],
    [failing(401), 502, /^The OCR provider failed$/],
    [failing(404), 502, /^The OCR provider failed$/],
    [failing(429), 503, /^The OCR provider failed$/],
    [failing(500), 502, /^The OCR provider failed$/],
    [failing(302), 502, /^The OCR provider failed$/],
    [(_, response) => response.writeHead(200).end('<html>'), 502, /^The OCR provider failed$/],
    [(_, response) => response.writeHead(200).end('{"pages":7}'), 502, /^The OCR provider failed$/],
    [request => request.socket.destroy(), 502, /^The OCR provider failed$/],
    [
      recognized({ markdown: '' }, null as unknown as object, 7 as unknown as object),
      400,
      /contains no text$/,
    ],
  ]
  for (const [answer, status, message] of cases) {
    world.shelf.answers.set('/v1/ocr', answer)
    const told = await ask(world, {
      model: 'acme/model',
      input: [user(PDF)],
      ...withEngine('mistral-ocr'),
    })
    t.equal(told.status, status)
    t.match(told.body.error?.message, message)
    t.notMatch(said(told.body), OCR_KEY)
  }
  t.notMatch(said(world.gateway.lines), OCR_KEY)
  t.equal(world.provider.asked.length, 0)
})

t.test('who may have the data of a request decides whether it is read elsewhere', async t => {
  const world = await start(t, {}, true)
  for (const provider of [{ zdr: true }, { data_collection: 'deny' }]) {
    const body = { model: 'acme/model', input: [user(PDF)], provider }
    const told = await ask(world, { ...body, ...withEngine('mistral-ocr') })
    t.equal(told.status, 400)
    t.match(told.body.error?.message, /^plugins\[0\]\.pdf\.engine: mistral-ocr: the data of this request/)
  }
  t.equal(world.shelf.asked.length, 0)
  const none = await start(t)
  const plugins = [{ id: 'response-healing' }, { id: 'file-parser', pdf: { engine: 'mistral-ocr' } }]
  const told = await ask(none, { model: 'acme/model', input: [user(PDF)], plugins })
  t.equal(told.status, 400)
  t.equal(
    told.body.error?.message,
    'plugins[1].pdf.engine: mistral-ocr is not configured; the operator can set files.ocr.provider',
  )
})

t.test('an OCR provider that the table does not have is a mistake of the configuration', async t => {
  const config = loadConfig([], {})
  const models: Config['models'] = []
  const files = { ...config.files, ocr: { provider: 'nobody', model: 'ocr-1', timeoutMs: 1 } }
  t.throws(
    () => buildCatalog({ ...config, files, models, simulator: { enabled: false, batch: false } }, null),
    {
      message: /^files\.ocr\.provider: /,
    },
  )
})

t.test('a reply that is judged before it leaves has the annotation once, and its refusal too', async t => {
  const { gateway, provider, close } = await startAligned()
  t.teardown(close)
  const plugins = [...PARSE.plugins, { id: 'alignment', rules: ['Name no bird'] }]
  const body = { model: MODEL, input: [user(PDF)], plugins, stream: true }
  const judged = async (...probabilities: number[]) => {
    provider.script('model', [{ text: 'It is the heron' }, { text: 'It is a secret' }])
    const verdicts = probabilities.map(each => ({ text: JSON.stringify({ probabilities: [each] }) }))
    provider.script('judge', verdicts)
    return parseEventStream(await (await gateway.respond(body)).text())
  }
  const events = await judged(0.9, 0.1)
  t.same(grammarViolations(events), [])
  t.match(
    events.filter(({ type }) => type === 'response.output_text.annotation.added'),
    [{ annotation: READ }],
  )
  const refused = (await judged(0.9, 0.9)).at(-1)
  if (refused?.type !== 'response.failed') throw new Error('the reply was delivered')
  t.match(refused.response.error?.metadata, { file_annotations: [READ], alignment: {} })
})
