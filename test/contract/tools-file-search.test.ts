/** The server tool file_search over HTTP: in both spellings, in own files only, with citations and results. */
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { writePdf } from '../support/pdf.ts'
import { type Fields, MODEL, responsesReply, resultsOf, serve, startFileTools } from '../support/world.ts'

const OURS = { type: 'gateway:file_search' }
const NATIVE = { type: 'file_search', vector_store_ids: ['workspace'] }
const INCLUDE = { include: ['file_search_call.results'] }

interface Result {
  readonly file_id: string
  readonly filename: string
  readonly score: number
  readonly text: string
}
const found = (text: string | undefined): readonly Result[] =>
  resultsOf([text ?? ''])[0]?.['results'] as unknown as readonly Result[]

for (const stream of [false, true]) {
  t.test(`passages are found and cited, ${stream ? 'streamed' : 'whole'}`, async t => {
    const { play, upload } = await startFileTools(t)
    const long = Array.from({ length: 400 }, (_, at) => `Sentence ${at} of a long text that nobody asks for.`)
    long[333] = 'The bicycle shed is painted ochre.'
    const a = await upload('long.txt', long.join('\n'))
    const b = await upload('b.pdf', writePdf({ pages: ['Nothing here', 'The ochre bicycle of the mayor'] }))
    await upload('data.jsonl', '{"ochre":"bicycle"}', undefined, 'batch')
    await upload('binary', Buffer.from('ochre bicycle\0'))
    const args = { queries: ['ochre bicycle'] }
    const { response, results } = await play(NATIVE, 'file_search', [args, { queries: ['zeppelin'] }], {
      stream,
      ...INCLUDE,
    })
    const passages = found(results[0])
    t.same(new Set(passages.map(({ file_id }) => file_id)), new Set([a, b]))
    for (const { text, score } of passages) {
      t.match(text, /ochre/i)
      t.ok(score > 0 && score <= 1)
      t.ok(text.length <= 1_600)
    }
    t.same(found(results[1]), [])
    t.match(response.output[0], {
      type: 'file_search_call',
      status: 'completed',
      queries: ['ochre bicycle'],
      results: passages.map(each => ({ ...each, attributes: {} })),
    })
    t.match(response.output[1], { type: 'file_search_call', queries: ['zeppelin'], results: [] })
    t.match(response.output[2], {
      type: 'message',
      content: [
        {
          annotations: [...new Map(passages.map(each => [each.file_id, each.filename]))].map(
            ([file_id, filename], index) => ({ type: 'file_citation', file_id, filename, index }),
          ),
        },
      ],
    })
  })
}

t.test('the spelling of the gateway has its own item, and results only when they are asked for', async t => {
  const { play, upload } = await startFileTools(t)
  const id = await upload('a.txt', 'a red house')
  const args = { queries: ['red house'] }
  const plain = await play(OURS, 'file_search', [args])
  t.match(plain.response.output[0], {
    type: 'gateway:file_search',
    status: 'completed',
    queries: ['red house'],
  })
  t.notOk(Object.hasOwn(plain.response.output[0] ?? {}, 'results'))
  t.equal(found(plain.results[0])[0]?.file_id, id)
  const native = await play(NATIVE, 'file_search', [args])
  t.match(native.response.output[0], { type: 'file_search_call', results: null })
  const asked = await play({ type: 'openrouter:file_search' }, 'file_search', [args], INCLUDE)
  t.match(asked.response.output[0], { type: 'openrouter:file_search', results: [{ file_id: id }] })
})

t.test('a search is bounded by files, number and score', async t => {
  const { play, upload } = await startFileTools(t)
  const ids: string[] = []
  for (let at = 0; at < 6; at++)
    ids.push(await upload(`${at}.txt`, at === 2 ? 'green apple pie' : `green ${at}`))
  const searched = async (settings: Fields, queries: unknown = ['green apple']) => {
    const tool = { ...OURS, parameters: settings }
    return found((await play(tool, 'file_search', [{ queries }])).results[0]).map(({ file_id }) => file_id)
  }
  t.equal((await searched({})).length, 6)
  t.equal((await searched({}))[0], ids[2], 'more of the words come first')
  t.same(await searched({ max_num_results: 1 }), [ids[2]])
  t.same(await searched({ vector_store_ids: [ids[4]] }), [ids[4]])
  t.equal((await searched({ vector_store_ids: [ids[4], 'workspace'] })).length, 6)
  t.same(await searched({ ranking_options: { ranker: 'auto', score_threshold: 0.9 } }), [ids[2]])
  t.equal((await searched({}, 'green')).length, 6, 'a text counts as a list of one')
})

t.test('filters leave files out by what is known of them', async t => {
  const { play, upload } = await startFileTools(t)
  const a = await upload('a.txt', 'green tea')
  const b = await upload('b.txt', `green ${'long '.repeat(100)}`)
  const c = await upload('c.txt', 'green', undefined, 'assistants')
  const searched = async (filters: Fields, more: Fields = {}) => {
    const tool = { ...NATIVE, ...more, filters }
    const { results } = await play(tool, 'file_search', [{ queries: ['green'] }])
    return new Set(found(results[0]).map(({ file_id }) => file_id))
  }
  const is = (type: string, key: string, value: unknown) => ({ type, key, value })
  t.same(await searched(is('eq', 'filename', 'a.txt')), new Set([a]))
  t.same(await searched(is('ne', 'filename', 'a.txt')), new Set([b, c]))
  t.same(await searched(is('gt', 'bytes', 100)), new Set([b]))
  t.same(await searched(is('lte', 'bytes', 9)), new Set([a, c]))
  t.same(await searched(is('in', 'file_id', [a, b])), new Set([a, b]))
  t.same(await searched(is('nin', 'purpose', ['assistants'])), new Set([a, b]))
  t.same(await searched(is('gte', 'created_at', 0), { vector_store_ids: [b] }), new Set([b]))
  t.same(await searched(is('lt', 'created_at', 0)), new Set())
  const either = { type: 'or', filters: [is('eq', 'filename', 'c.txt'), is('gt', 'bytes', 100)] }
  t.same(await searched({ type: 'and', filters: [either, is('lt', 'bytes', 100)] }), new Set([c]))
})

t.test('what is no search is told to the model', async t => {
  const { play, upload } = await startFileTools(t)
  await upload('a.txt', 'x')
  for (const [tool, status] of [
    [OURS, 'incomplete'],
    [NATIVE, 'failed'],
  ] as const) {
    const { response, results } = await play(tool, 'file_search', [
      {},
      { queries: [] },
      { queries: [' ', 1] },
    ])
    for (const at of [0, 1, 2]) {
      t.match(resultsOf([results[at] ?? ''])[0], { error: /^queries: / })
      t.match(response.output[at], { status })
    }
    const odd = ['"', '*', 'a AND', 'NEAR(', "'; --", '\0', '日本', '('.repeat(3_000)]
    const { results: ran } = await play(
      tool,
      'file_search',
      odd.map(query => ({ queries: [query] })),
    )
    for (const [at, query] of odd.entries()) t.same(found(ran[at]), [], JSON.stringify(query.slice(0, 20)))
  }
})

t.test('ids of nobody, and of other workspaces, are refused before a model is asked', async t => {
  const { gateway, play, provider, upload, keyIn } = await startFileTools(t)
  const other = await keyIn('ws_other')
  const theirs = await upload('theirs.txt', 'a canary of others', other)
  await upload('ours.txt', 'a canary of ours')
  const gone = await upload('gone.txt', 'x')
  const authorization = `Bearer ${gateway.apiKey}`
  await fetch(`${gateway.url}/files/${gone}`, { method: 'DELETE', headers: { authorization } })
  for (const id of [theirs, gone, 'gw_file_000000000000000000000000', 'vs_123', 'canary/../x', '']) {
    for (const [tool, path] of [
      [{ ...NATIVE, vector_store_ids: ['workspace', id] }, 'tools[0].vector_store_ids[1]'],
      [{ ...OURS, parameters: { vector_store_ids: [id] } }, 'tools[0].parameters.vector_store_ids[0]'],
    ] as const) {
      provider.asked.length = 0
      const reply = await gateway.respond({ model: MODEL, input: 'x', tools: [tool] })
      const { error } = (await reply.json()) as { error: { message: string } }
      t.equal(reply.status, 400, error.message)
      t.ok(error.message.startsWith(`${path}: `), error.message)
      t.notMatch(error.message, 'canary')
      t.equal(provider.asked.length, 0)
    }
  }
  for (const [tool, path] of [
    [{ ...NATIVE, filters: { type: 'eq', key: 'a', value: 'b' } }, 'tools[0].filters.key'],
    [{ ...OURS, parameters: { filters: { type: 'near' } } }, 'tools[0].parameters.filters.type'],
    [
      { ...OURS, parameters: { filters: { type: 'gt', key: 'bytes', value: '1' } } },
      'tools[0].parameters.filters.value',
    ],
    [
      { ...OURS, parameters: { filters: { type: 'or', filters: [] } } },
      'tools[0].parameters.filters.filters',
    ],
    [
      { ...NATIVE, filters: { type: 'and', filters: [{ type: 'in', key: 'purpose', value: 'x' }] } },
      'tools[0].filters.filters[0].value',
    ],
    [{ ...NATIVE, vector_store_ids: Array(101).fill('workspace') }, 'tools[0].vector_store_ids'],
  ] as const) {
    const reply = await gateway.respond({ model: MODEL, input: 'x', tools: [tool] })
    t.equal(reply.status, 400)
    t.match(await reply.text(), path)
  }
  const { results } = await play(OURS, 'file_search', [{ queries: ['canary'] }], { apiKey: other })
  t.same(
    found(results[0]).map(({ file_id }) => file_id),
    [theirs],
  )
})

t.test('a file_search of a provider stays with a provider that has the tool', async t => {
  const provider = await serve(t, (_request, response) => {
    response
      .writeHead(200, { 'content-type': 'application/json' })
      .end(JSON.stringify(responsesReply('Done.')))
  })
  const gateway = await startGateway({
    providers: [
      { slug: 'acme', name: 'Acme', format: 'openai-responses', baseUrl: provider.url, apiKey: 'x' },
    ],
    models: [{ id: 'acme/m', endpoints: [{ provider: 'acme', pricing: {} }] }],
  })
  t.teardown(gateway.close)
  const foreign = {
    type: 'file_search',
    vector_store_ids: ['vs_123'],
    filters: { type: 'eq', key: 'a', value: 'b' },
  }
  const mixed = { ...foreign, vector_store_ids: ['vs_123', 'workspace'] }
  const ask = (tool: Fields) => gateway.respond({ model: 'acme/m', input: 'x', tools: [tool] })
  const sent = () => JSON.parse(provider.seen.at(-1)?.body ?? '') as unknown
  t.equal((await ask(foreign)).status, 200)
  t.match(sent(), { tools: [foreign] })
  t.equal((await ask(NATIVE)).status, 200)
  t.match(sent(), { tools: [{ type: 'function', name: 'file_search' }] })
  t.equal((await ask(mixed)).status, 400)
})
